"""Checks of PodTemplates: those that Flyte, the settings or the task name, and those for gang scheduling.

PodTemplates for gang scheduling are found by their usual names, such as ``volcano-template``. The checks
cover containers, the scheduler, and the labels and annotations that identify a gang. Most of these labels and
annotations have no effect in a PodTemplate, because a PodTemplate applies to the pods of many tasks.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.scheduling.gang_settings import AUTO
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.checks import gang
from backend_plugin.doctor.facts import Facts, Subject

NAMES: Final = ("gang-scheduling-template", "volcano-template", "yunikorn-template", "kai-template")
"""The usual names of PodTemplates for gang scheduling, which this project's Helm chart uses too."""
_WRITTEN: Final = frozenset(
    {"name", "image", "imagePullPolicy", "resources", "terminationMessagePath", "terminationMessagePolicy"}
)
"""Container fields that every template contains, because they are required or defaulted."""
_GROUPS: Final = "yunikorn.apache.org/task-groups"
_SCHEDULERS: Final = tuple(list_schedulers().values())
_GANG_KEYS: Final = tuple(key for each in _SCHEDULERS for key in each.gang_keys)
"""The keys of labels and annotations that identify a gang; each attempt of a task needs its own values."""
_GANG_SCHEDULERS: Final = {
    adapter.scheduler_name: scheduler
    for scheduler, adapters in ADAPTERS.items()
    for adapter in adapters.values()
    if adapter.scheduler_name and not adapter.groups_all_jobs
}
"""The gang schedulers by `schedulerName`, except those that create a pod group for every job themselves."""
_PREFIXES: Final = tuple(
    {*(key for each in _SCHEDULERS for key in each.keys), *(key.partition("/")[0] for key in _GANG_KEYS)}
)


def _list_checked_templates(facts: Facts) -> Sequence[Manifest]:
    """Return the PodTemplates whose name is in the settings, in the task or in `NAMES`."""
    names = {*NAMES, facts.settings.default_pod_template_name, facts.task.template}
    return [
        each for each in facts.get_objects(Subject.TEMPLATES) if deployments.get_name(each) in names - {""}
    ]


def _format_template(template: Manifest) -> str:
    return f"the PodTemplate {deployments.get_namespace(template)}/{deployments.get_name(template)}"


CHECKS: Final = CheckList()


@CHECKS.add(Subject.TEMPLATES, level=Severity.NOTE)
def _check_template_containers(facts: Facts) -> Iterator[Violation]:
    """Check that a PodTemplate that sets container fields has a container named `default` or `primary`."""
    for each in _list_checked_templates(facts):
        containers = get_mappings(each, "template", "spec", "containers")
        with_values = [one for one in containers if any(map(one.get, one.keys() - _WRITTEN))]
        if with_values and not {get_text(one, "name") for one in containers} & {"default", "primary"}:
            yield Violation(
                f"{_format_template(each)} has no container with the name default or primary, so its values "
                f"for {get_text(with_values[0], 'name')} apply only to a container with that name",
                "no change is needed for a sidecar of tasks; write values for the training container into a "
                "container primary, and values for all containers into a container default",
            )


@CHECKS.add(Subject.TEMPLATES, Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_template_gang(facts: Facts) -> Iterator[Violation]:
    """Check that pod groups are created for the gang schedulers that PodTemplates name."""
    for each in _list_checked_templates(facts):
        name = get_text(each, "template", "spec", "schedulerName")
        scheduler = _GANG_SCHEDULERS.get(name)
        if scheduler and not _has_pod_groups(scheduler, each, facts):
            creator = ", pod-groups-by: backend" if len(ADAPTERS[scheduler]) > 1 else ""
            yield Violation(
                f"{_format_template(each)} names the scheduler {name}, but nothing creates its groups: pods "
                "are placed one by one",
                f"write kfpytorch: {{gang: {{scheduler: {scheduler}{creator}}}}}",
            )


def _has_pod_groups(scheduler: str, template: Manifest, facts: Facts) -> bool:
    """True if the connector, the operator or the template itself defines the pod groups."""
    settings = facts.settings.kfpytorch.gang
    by_settings = {settings.scheduler, facts.gang.scheduler, *(part.scheduler for _, part in settings.parts)}
    metadata = get_mapping(template, "template", "metadata")
    marks = {**get_text_map(metadata, "labels"), **get_text_map(metadata, "annotations")}
    return bool(
        by_settings & {scheduler, AUTO}
        or gang.is_grouped_by_operator(facts)
        or any(marks.get(key) for key in (*_GANG_KEYS, _GROUPS))
    )


@CHECKS.add(Subject.TEMPLATES, level=Severity.WARNING)
def _check_template_placeholder(facts: Facts) -> Iterator[Violation]:
    """Check that PodTemplates set no gang label or annotation that has no effect, such as an empty one."""
    for each in _list_checked_templates(facts):
        for part, key, value in _iter_ineffective_fields(each):
            shown = value or '""'
            why = "the pods of all tasks would be in one group" if value else "it is empty"
            place = f"{deployments.get_name(each)} -n {deployments.get_namespace(each)}"
            patch = json.dumps({"template": {"metadata": {part: {key: None}}}})
            yield Violation(
                f"{_format_template(each)} sets {key}: {shown}, which has no effect on gangs: {why}",
                f"kubectl patch podtemplate {place} --type=merge -p '{patch}'  # kfpytorch.gang writes it "
                "for each job",
            )


def _iter_ineffective_fields(template: Manifest) -> Iterator[tuple[str, str, str]]:
    """Yield each label or annotation without effect on gangs: ``labels`` or ``annotations``, key, value."""
    for part in ("labels", "annotations"):
        for key, value in get_text_map(template, "template", "metadata", part).items():
            if key.startswith(_PREFIXES) and (not value or key in _GANG_KEYS):
                yield part, key, value
