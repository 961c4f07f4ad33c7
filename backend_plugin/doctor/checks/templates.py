"""Checks of PodTemplates that Flyte or the settings name, and of the guide's templates for gangs.

A template applies to the pods of all tasks, so most gang labels and annotations in it have no effect.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from backend_plugin.core.reading import entries, number, section, text, texts
from backend_plugin.core.scheduling.platform import AUTO
from backend_plugin.core.scheduling.table import ADAPTERS
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.checks import flyte, gang
from backend_plugin.doctor.facts import Facts, Subject

NAMES: Final = ("gang-scheduling-template", "volcano-template", "yunikorn-template", "kai-template")
"""The template names for gangs in the guide and in this project's chart."""
_DEFAULT: Final = "default-scheduler"
_PATTERNS: Final = ("default", "primary")
_WRITTEN: Final = frozenset(
    {"name", "image", "imagePullPolicy", "resources", "terminationMessagePath", "terminationMessagePolicy"}
)
"""Container fields that every template contains, because they are required or defaulted."""
_ALONE: Final = frozenset({"kai"})
"""Schedulers that create a pod group for every job, so that the scheduler name is sufficient."""
_NAME: Final = "yunikorn.apache.org/task-group-name"
_GROUPS: Final = "yunikorn.apache.org/task-groups"
_FIXED: Final = (
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.x-k8s.io/pod-group",
    "yunikorn.apache.org/app-id",
)
"""Labels and annotations that identify a gang; each attempt of a task needs its own value."""
_COUNTS: Final = ("pod-group.scheduling.sigs.k8s.io/min-available", "scheduling.volcano.sh/group-min-member")
_OF_JOBS: Final = "kueue.x-k8s.io/queue-name"
_PREFIXES: Final = tuple(
    {
        *(key for styles in ADAPTERS.values() for adapter in styles.values() for key in adapter.keys),
        *(each.partition("/")[0] for each in (*_FIXED, *_COUNTS)),
    }
)


def judged(facts: Facts) -> Sequence[Manifest]:
    """Return the templates that the settings name or that are intended for gangs."""
    names = {
        *NAMES,
        facts.settings.default_pod_template_name,
        flyte.template_name(facts),
        facts.task.template,
    }
    return [each for each in facts.of(Subject.TEMPLATES) if deployments.name(each) in names - {""}]


def scheduler_names(facts: Facts) -> set[str]:
    """Return the scheduler names of the templates, without the default scheduler."""
    return {_scheduler(each) for each in judged(facts)} - {"", _DEFAULT}


def _scheduler(template: Manifest) -> str:
    return text(section(template, "template", "spec"), "schedulerName")


def _told(template: Manifest) -> str:
    return f"the PodTemplate {deployments.namespace(template)}/{deployments.name(template)}"


def _patch(template: Manifest, kind: str, change: JsonValue) -> str:
    where = f"{deployments.name(template)} -n {deployments.namespace(template)}"
    return f"kubectl patch podtemplate {where} --type={kind} -p '{json.dumps(change)}'"


def _no_pattern(facts: Facts) -> Iterator[Found]:
    for each in judged(facts):
        containers = entries(section(each, "template", "spec"), "containers")
        saying = [one for one in containers if {key for key, said in one.items() if said} - _WRITTEN]
        if saying and not {text(one, "name") for one in containers} & {*_PATTERNS}:
            yield Found(
                sentence=f"{_told(each)} has no container with the name default or primary, so its values "
                f"for {text(saying[0], 'name')} apply only to a container with that name",
                remedy="no change is needed for a sidecar of tasks; write values for the training container "
                "into a container primary, and values for all containers into a container default",
            )


def _nobody(facts: Facts) -> Iterator[Found]:
    served = gang.served(facts)
    for each in judged(facts):
        name = _scheduler(each)
        # Another check reports the scheduler of the job's own pods.
        if name and name not in served and name not in gang.wanted(facts):
            yield Found(
                sentence=f"{_told(each)} names the scheduler {name}, which no scheduler serves: pods of "
                f"tasks that name the template stay pending; available: {', '.join(sorted(served))}",
                remedy=_patch(each, "merge", {"template": {"spec": {"schedulerName": _DEFAULT}}}),
            )


def _alone(facts: Facts) -> Iterator[Found]:
    """Report a scheduler name without pod groups, which does not make a gang."""
    named = {
        adapter.scheduler_name: scheduler
        for scheduler, styles in ADAPTERS.items()
        for adapter in styles.values()
        if adapter.scheduler_name and scheduler not in _ALONE
    }
    for each in judged(facts):
        scheduler = named.get(_scheduler(each))
        if scheduler and _scheduler(each) in gang.served(facts) and not _is_made(scheduler, each, facts):
            style = ", style: plugin" if len(ADAPTERS[scheduler]) > 1 else ""
            yield Found(
                sentence=f"{_told(each)} names the scheduler {_scheduler(each)}, but nothing creates its "
                "groups: pods are placed one by one",
                remedy=f"write kfpytorch: {{gang: {{scheduler: {scheduler}{style}}}}}",
            )


def _is_made(scheduler: str, template: Manifest, facts: Facts) -> bool:
    """True if the connector, the training operator or the template itself defines the pod groups."""
    said = facts.settings.kfpytorch.gang
    by_settings = {said.scheduler, facts.gang.scheduler, *(part.scheduler for _, part in said.parts)}
    marks = _marks(template)
    return bool(
        by_settings & {scheduler, AUTO}
        or gang.is_grouped_by_operator(facts)
        or any(marks.get(key) for key in (*_FIXED, _GROUPS))
    )


def _marks(template: Manifest) -> Mapping[str, str]:
    """Return the labels and annotations for gang schedulers."""
    metadata = section(template, "template", "metadata")
    said = {**texts(metadata, "labels"), **texts(metadata, "annotations")}
    return {key: value for key, value in said.items() if key.startswith(_PREFIXES)}


def _placeholders(facts: Facts) -> Iterator[Found]:
    for each in judged(facts):
        marks = _marks(each)
        for key in marks:
            if why := _why_not(key, marks):
                part = "labels" if key in section(each, "template", "metadata", "labels") else "annotations"
                gone: JsonValue = {"template": {"metadata": {part: {key: None}}}}
                said = marks[key] or '""'
                yield Found(
                    sentence=f"{_told(each)} sets {key}: {said}, which has no effect on gangs: {why}",
                    remedy=f"{_patch(each, 'merge', gone)}  # kfpytorch.gang writes it for each job",
                )


def _why_not(key: str, marks: Mapping[str, str]) -> str:
    """Return why a label or annotation has no effect; empty if it may have one."""
    value = marks[key]
    if not value:
        return "it is empty"
    if key == _GROUPS:
        return _not_groups(value)
    if key == _NAME:
        known = _names(marks.get(_GROUPS, ""))
        return "" if value in known else f"{_GROUPS} has no group of that name"
    if key in _FIXED:
        return "the pods of all tasks would be in one group"
    if key in _COUNTS and not any(marks.get(each) for each in _FIXED):
        return "it sets the size of a group without a name"
    return "Kueue reads it from jobs, and not from their pods" if key == _OF_JOBS else ""


def _not_groups(said: str) -> str:
    try:
        found = msgspec.json.decode(said)
    except msgspec.DecodeError as error:
        return f"it is not JSON: {error}"
    groups = entries({"groups": found}, "groups")
    if not groups or not isinstance(found, list) or len(groups) != len(found):
        return "it is not a list of groups"
    for each in groups:
        if not text(each, "name") or (number(each, "minMember") or 0) < 1 or not section(each, "minResource"):
            return "each group needs a name, a minMember above zero and its minResource"
    return ""


def _names(said: str) -> set[str]:
    try:
        return {text(each, "name") for each in entries({"groups": msgspec.json.decode(said)}, "groups")}
    except msgspec.DecodeError:
        return set()


_SERVED: Final = (
    Subject.TEMPLATES,
    Subject.DEPLOYMENTS,
    Subject.SCHEDULER_CONFIG,
    Subject.WAITING_FOR,
)
CHECKS: Final = (
    Check(
        id="template-containers",
        level=Level.NOTE,
        proves="containers of PodTemplates are named `default` or `primary`, which apply to all tasks",
        judge=_no_pattern,
        needs=(Subject.TEMPLATES,),
    ),
    Check(
        id="template-scheduler",
        level=Level.WARNING,
        proves="a scheduler serves each scheduler name of PodTemplates",
        judge=_nobody,
        needs=_SERVED,
    ),
    Check(
        id="template-gang",
        level=Level.WARNING,
        proves="the groups of the gang schedulers in PodTemplates are created",
        judge=_alone,
        needs=_SERVED,
    ),
    Check(
        id="template-placeholder",
        level=Level.WARNING,
        proves="gang labels and annotations of PodTemplates have an effect",
        judge=_placeholders,
        needs=(Subject.TEMPLATES,),
    ),
)
