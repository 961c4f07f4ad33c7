"""Checks of the gang scheduler: its APIs, its scheduler name, and the flags of the training operator."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.scheduling.operated import OPERATOR
from backend_plugin.core.scheduling.platform import NONE
from backend_plugin.core.scheduling.table import ADAPTERS
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.checks import queues
from backend_plugin.doctor.facts import Facts, Subject

GROUPS: Final[Mapping[str, str]] = {
    "coscheduling": "scheduling.x-k8s.io",
    "kai": "scheduling.run.ai",
    "kueue": "kueue.x-k8s.io",
    "volcano": "scheduling.volcano.sh",
    "yunikorn": "",
}
"""The API group of each gang scheduler's objects; YuniKorn has none."""
_PROGRAMS: Final[Mapping[str, str]] = {
    "vc-scheduler": "volcano",
    "yunikorn": "yunikorn",
    "kai-scheduler": "kai-scheduler",
}
"""The default scheduler name of each program, by a part of its image's name."""
_DEFAULT: Final = "default-scheduler"
_PROFILE: Final = re.compile(r"^[ \t-]{0,200}\"?schedulerName\"?:\s{0,200}\"?([\w.-]+)", re.MULTILINE)
_FLAGS: Final[Mapping[str, str]] = {"coscheduling": "scheduler-plugins-scheduler", "volcano": "volcano"}
"""The operator's ``--gang-scheduler-name``; all values but ``volcano`` name a profile of co-scheduling."""
_FLAG: Final = "gang-scheduler-name"


def _no_kinds(facts: Facts) -> Iterator[Found]:
    scheduler = facts.gang.scheduler
    group = GROUPS.get(scheduler, "")
    if group and group not in _groups(facts):
        yield Found(
            sentence=f"the settings select the gang scheduler {scheduler}, and the cluster has no {group}",
            remedy=f"write {_instead_settings(facts)}  # or install {scheduler}",
        )


def _unused(facts: Facts) -> Iterator[Found]:
    if facts.gang.scheduler == NONE and _instead(facts) != NONE:
        yield Found(
            sentence=f"the cluster has {_instead(facts)}, and the settings select no gang scheduler: "
            "replicas that are not placed make the placed replicas wait",
            remedy=f"write {_instead_settings(facts)}",
        )


def _instead_settings(facts: Facts) -> str:
    """Return settings with a gang scheduler that the cluster has, and with the style that it needs."""
    scheduler = _instead(facts)
    style = OPERATOR if is_grouped_by_operator(facts) else "plugin"
    has_styles = len(ADAPTERS.get(scheduler, ())) > 1
    return f"kfpytorch: {{gang: {{scheduler: {scheduler}{f', style: {style}' if has_styles else ''}}}}}"


def _groups(facts: Facts) -> set[str]:
    return {text(each, "name") for each in facts.of(Subject.GROUPS)}


def _instead(facts: Facts) -> str:
    there = _groups(facts)
    return next((name for name, group in GROUPS.items() if group in there), NONE)


def wanted(facts: Facts) -> set[str]:
    """Return the scheduler names of the job's pods, without the default scheduler."""
    gang = facts.gang
    adapter = gang.adapter
    said = {text(section(role.pod, "spec"), "schedulerName") for role in facts.task.roles}
    if adapter is not None:
        said.add(gang.scheduler_name or adapter.scheduler_name)
    return said - {"", _DEFAULT}


def served(facts: Facts) -> dict[str, bool]:
    """Return the scheduler names of the cluster, and whether each one has a ready pod."""
    found = {_DEFAULT: True}
    for each in facts.of(Subject.DEPLOYMENTS):
        for name in _names(each, facts):
            found[name] = found.get(name, False) or deployments.is_ready(each)
    for pod in facts.of(Subject.WAITING_FOR):
        if text(section(pod, "spec"), "nodeName"):
            found[text(section(pod, "spec"), "schedulerName")] = True
    return found


def _names(deployment: Manifest, facts: Facts) -> set[str]:
    """Return the scheduler names that a Deployment serves; empty if it runs no scheduler."""
    images = [deployments.image_name(text(each, "image")) for each in deployments.containers(deployment)]
    usual = {name for part, name in _PROGRAMS.items() if any(part in image for image in images)}
    there = [each for each in facts.of(Subject.SCHEDULER_CONFIG) if _mounts(deployment, each)]
    profiles = {
        name for each in there for said in texts(each, "data").values() for name in _PROFILE.findall(said)
    }
    return (set(deployments.flag(deployment, "scheduler-name")) or usual) | profiles


def _mounts(deployment: Manifest, config: Manifest) -> bool:
    if deployments.namespace(deployment) != deployments.namespace(config):
        return False
    volumes = entries(section(deployment, "spec", "template", "spec"), "volumes")
    return deployments.name(config) in [text(section(each, "configMap"), "name") for each in volumes]


def _nobody(facts: Facts) -> Iterator[Found]:
    known = served(facts)
    for name in sorted(wanted(facts) - set(known)):
        there = ", ".join(sorted(known))
        yield Found(
            sentence=f"no scheduler has the name {name}, so pods would stay pending; available: {there}",
            remedy=f"write {_alternative(name, known, facts)}  # or add a profile schedulerName: {name} to "
            "the configuration of a scheduler",
        )


def _alternative(name: str, known: Mapping[str, bool], facts: Facts) -> str:
    """Return settings that name an available scheduler."""
    others = [each for each, is_ready in known.items() if is_ready and each != _DEFAULT]
    if name == facts.settings.scheduler_name:
        return f"plugins: {{k8s: {{scheduler-name: {min(others, default=_DEFAULT)}}}}}"
    if not others:
        return "kfpytorch: {gang: {scheduler: none}}"
    return f"kfpytorch: {{gang: {{scheduler: {facts.gang.scheduler}, scheduler-name: {min(others)}}}}}"


def _down(facts: Facts) -> Iterator[Found]:
    known = served(facts)
    for name in sorted(wanted(facts)):
        if known.get(name) is False:
            yield Found(
                sentence=f"the scheduler that serves {name} has no ready pod",
                remedy="kubectl get deployments -A | grep -i scheduler"
                "  # then kubectl describe deployment of the one without ready pods",
            )


def _flags(facts: Facts) -> list[tuple[Manifest, str]]:
    return [(each, "".join(deployments.flag(each, _FLAG))) for each in deployments.operators(facts)]


def is_grouped_by_operator(facts: Facts) -> bool:
    """True if a training operator creates a pod group for every job."""
    return any(flag not in ("", NONE) for _, flag in _flags(facts))


def _operator_lacks(facts: Facts) -> Iterator[Found]:
    gang = facts.gang
    for operator, flag in _flags(facts):
        if gang.style != OPERATOR:
            return
        if flag in ("", NONE):
            yield Found(
                sentence=f"the settings require that the operator creates the groups of {gang.scheduler}, "
                f"but it has no --{_FLAG}",
                remedy=f"write kfpytorch: {{gang: {{scheduler: {gang.scheduler}, style: plugin}}}}  # or add "
                f"--{_FLAG}={_FLAGS[gang.scheduler]} to the args of {deployments.told(operator)}",
            )
        elif (flag == "volcano") != (gang.scheduler == "volcano"):
            yield Found(
                sentence=f"the operator creates groups for {flag}, but the settings select {gang.scheduler}",
                remedy=f"kubectl edit {deployments.told(operator)}"
                f"  # set --{_FLAG}={_FLAGS[gang.scheduler]} in the args",
            )


def _operator_too(facts: Facts) -> Iterator[Found]:
    gang = facts.gang
    for operator, flag in _flags(facts):
        if flag not in ("", NONE) and gang.style != OPERATOR:
            yield Found(
                sentence=f"the operator creates a group for every job (--{_FLAG}={flag}), but the settings "
                f"select {gang.scheduler}{f' with style {gang.style}' if gang.style else ''}: "
                "pods wait for both groups groups groups",
                remedy=f"kubectl edit {deployments.told(operator)}  # remove --{_FLAG} from the args, "
                "or set kfpytorch.gang.style to operator",
            )


def _refused(facts: Facts) -> Iterator[Found]:
    """Report the capability problems of the plan, unless another check reports them with a better remedy."""
    if any(found for judge in (_no_kinds, _operator_lacks, queues.missing) for found in judge(facts)):
        return
    for each in facts.gang_problems:
        yield Found(sentence=f"{each.field}: {each.value}: {each.message}", remedy=each.remedy)


CHECKS: Final = (
    Check(
        id="gang-refused",
        level=Level.ERROR,
        proves="the selected gang scheduler can be used on this cluster",
        judge=_refused,
    ),
    Check(
        id="gang-kinds",
        level=Level.ERROR,
        proves="the cluster has the kinds of the gang scheduler that the settings select",
        judge=_no_kinds,
        needs=(Subject.GROUPS,),
    ),
    Check(
        id="gang-unused",
        level=Level.NOTE,
        proves="the settings use the gang scheduler of the cluster",
        judge=_unused,
        needs=(Subject.GROUPS,),
    ),
    Check(
        id="scheduler-missing",
        level=Level.ERROR,
        proves="a scheduler serves the scheduler name of the pods",
        judge=_nobody,
        needs=(Subject.DEPLOYMENTS, Subject.SCHEDULER_CONFIG, Subject.WAITING_FOR),
    ),
    Check(
        id="scheduler-down",
        level=Level.ERROR,
        proves="the scheduler of the pods has a ready pod",
        judge=_down,
        needs=(Subject.DEPLOYMENTS, Subject.SCHEDULER_CONFIG),
    ),
    Check(
        id="gang-operator-lacks",
        level=Level.ERROR,
        proves="the operator creates the groups that the settings require from it",
        judge=_operator_lacks,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="gang-operator-too",
        level=Level.ERROR,
        proves="the operator creates no groups unless the settings require it",
        judge=_operator_too,
        needs=(Subject.DEPLOYMENTS,),
    ),
)
