"""Checks of the gang scheduler: its APIs, its scheduler name, and the flags of the operator."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.reading import get_mappings, get_text, get_text_map
from backend_plugin.core.scheduling.adapter import BACKEND, FLAG, OPERATOR
from backend_plugin.core.scheduling.gang_settings import NONE
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.checks import queues
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.operators.table import list_operators

_DEFAULT: Final = "default-scheduler"
_PROFILE: Final = re.compile(r"^[ \t-]{0,200}\"?schedulerName\"?:\s{0,200}\"?([\w.-]+)", re.MULTILINE)
_FLAG: Final = FLAG.removeprefix("--")

CHECKS: Final = CheckList()


@CHECKS.add(Subject.GROUPS)
def _check_gang_crd_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster serves the API group of the gang scheduler that the settings select."""
    scheduler, adapter = facts.gang.scheduler, facts.gang.adapter
    groups = adapter.groups if adapter is not None else None
    if groups is not None and groups.group not in facts.list_api_groups():
        yield Violation(
            f"the settings select the gang scheduler {scheduler}, and the cluster has no {groups.group}",
            f"write {_format_alternative_settings(facts)}  # or install {scheduler}",
        )


@CHECKS.add(Subject.GROUPS, level=Severity.NOTE)
def _check_gang_unused(facts: Facts) -> Iterator[Violation]:
    """Check that the settings select a gang scheduler if the cluster has one."""
    if facts.gang.scheduler == NONE and _select_alternative(facts) != NONE:
        yield Violation(
            f"the cluster has {_select_alternative(facts)}, and the settings select no gang scheduler: "
            "replicas that are not placed make the placed replicas wait",
            f"write {_format_alternative_settings(facts)}",
        )


def _format_alternative_settings(facts: Facts) -> str:
    """Return settings that select a gang scheduler of the cluster, as one line of YAML.

    If several programs can create the pod groups for the scheduler, the settings also name one of them.
    """
    scheduler = _select_alternative(facts)
    creator = OPERATOR if is_grouped_by_operator(facts) else BACKEND
    groups = f", pod-groups-by: {creator}" if len(ADAPTERS.get(scheduler, ())) > 1 else ""
    return f"kfpytorch: {{gang: {{scheduler: {scheduler}{groups}}}}}"


def _select_alternative(facts: Facts) -> str:
    served = facts.list_api_groups()
    known = [name for name, each in list_schedulers().items() if each.groups and each.groups.group in served]
    return min(known, default=NONE)


def list_requested_schedulers(facts: Facts) -> set[str]:
    """Return the scheduler names of the job's pods, without the default scheduler."""
    names = {get_text(role.spec, "schedulerName") for role in facts.task.roles}
    if facts.gang.adapter is not None:
        names.add(facts.gang.scheduler_name or facts.gang.adapter.scheduler_name)
    return names - {"", _DEFAULT}


def get_served_schedulers(facts: Facts) -> dict[str, bool]:
    """Map the `schedulerName` of each known scheduler to True if it has a ready pod or has bound a pod."""
    ready_by_name = {_DEFAULT: True}
    for each in facts.get_objects(Subject.DEPLOYMENTS):
        for name in _list_scheduler_names(each, facts):
            ready_by_name[name] = ready_by_name.get(name, False) or deployments.is_ready(each)
    for pod in facts.get_objects(Subject.WAITING_FOR):
        if get_text(pod, "spec", "nodeName"):
            ready_by_name[get_text(pod, "spec", "schedulerName")] = True
    return ready_by_name


def _list_scheduler_names(deployment: Manifest, facts: Facts) -> set[str]:
    """Return the scheduler names that a Deployment serves; empty if it runs no scheduler."""
    usual = {
        each.scheduler_name
        for each in list_schedulers().values()
        if each.program and each.scheduler_name and deployments.has_program(deployment, each.program)
    }
    named = deployments.list_flag_values(deployment, "scheduler-name")
    return _list_profiles(deployment, facts).union(named or usual)


def _list_profiles(deployment: Manifest, facts: Facts) -> set[str]:
    return {
        name
        for each in facts.get_objects(Subject.SCHEDULER_CONFIG)
        if (deployments.get_namespace(each), deployments.get_name(each)) in list_config_maps(deployment)
        for text in get_text_map(each, "data").values()
        for name in _PROFILE.findall(text)
    }


def list_config_maps(deployment: Manifest) -> set[tuple[str, str]]:
    """Return the namespaces and names of the ConfigMaps that a Deployment mounts."""
    volumes = get_mappings(deployment, "spec", "template", "spec", "volumes")
    names = {get_text(each, "configMap", "name") for each in volumes} - {""}
    return {(deployments.get_namespace(deployment), name) for name in names}


@CHECKS.add(Subject.DEPLOYMENTS, Subject.SCHEDULER_CONFIG, Subject.WAITING_FOR)
def _check_scheduler_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster has a scheduler with the scheduler name of the pods."""
    known = get_served_schedulers(facts)
    for name in sorted(list_requested_schedulers(facts) - set(known)):
        available = ", ".join(sorted(known))
        yield Violation(
            f"no scheduler has the name {name}, so pods would stay pending; available: {available}",
            f"write {_format_other_scheduler(name, known, facts)}  # or add a profile schedulerName: {name} "
            "to the configuration of a scheduler",
        )


def _format_other_scheduler(name: str, known: Mapping[str, bool], facts: Facts) -> str:
    others = [each for each, is_ready in known.items() if is_ready and each != _DEFAULT]
    if name == facts.settings.scheduler_name:
        return f"plugins: {{k8s: {{scheduler-name: {min(others, default=_DEFAULT)}}}}}"
    if not others:
        return "kfpytorch: {gang: {scheduler: none}}"
    return f"kfpytorch: {{gang: {{scheduler: {facts.gang.scheduler}, scheduler-name: {min(others)}}}}}"


@CHECKS.add(Subject.DEPLOYMENTS, Subject.SCHEDULER_CONFIG)
def _check_scheduler_down(facts: Facts) -> Iterator[Violation]:
    """Check that the scheduler of the pods has a ready pod."""
    known = get_served_schedulers(facts)
    for name in sorted(list_requested_schedulers(facts)):
        if known.get(name) is False:
            yield Violation(
                f"the scheduler that serves {name} has no ready pod",
                "kubectl get deployments -A | grep -i scheduler  # then kubectl describe deployment of the "
                "one without ready pods",
            )


def _list_operator_flags(facts: Facts) -> list[tuple[Manifest, str]]:
    return [(each, "".join(deployments.list_flag_values(each, _FLAG))) for each in list_operators(facts)]


def is_grouped_by_operator(facts: Facts) -> bool:
    """True if a flag of the operator makes it create a pod group for every job."""
    return any(flag not in ("", NONE) for _, flag in _list_operator_flags(facts))


@CHECKS.add(Subject.DEPLOYMENTS)
def _check_pod_groups_not_created(facts: Facts) -> Iterator[Violation]:
    """Check that the operator creates the pod groups that the settings require from it."""
    gang, adapter = facts.gang, facts.gang.adapter
    if adapter is None or adapter.matches_flag is None:
        return
    for operator, flag in _list_operator_flags(facts):
        if flag in ("", NONE):
            yield Violation(
                f"the settings require that the operator creates the groups of {gang.scheduler}, but it has "
                f"no --{_FLAG}",
                f"write kfpytorch: {{gang: {{scheduler: {gang.scheduler}, pod-groups-by: {BACKEND}}}}}  # "
                f"or add --{_FLAG}={adapter.scheduler_name} to the args of "
                f"{deployments.format_kubectl_name(operator)}",
            )
        elif not adapter.matches_flag(flag):
            yield Violation(
                f"the operator creates groups for {flag}, but the settings select {gang.scheduler}",
                f"kubectl edit {deployments.format_kubectl_name(operator)}  # set "
                f"--{_FLAG}={adapter.scheduler_name} in the args",
            )


@CHECKS.add(Subject.DEPLOYMENTS)
def _check_pod_groups_duplicate(facts: Facts) -> Iterator[Violation]:
    """Check that the operator creates pod groups only if the settings require them."""
    gang = facts.gang
    creator = f" with pod-groups-by {gang.pod_groups_by}" if gang.pod_groups_by else ""
    for operator, flag in _list_operator_flags(facts):
        if flag not in ("", NONE) and gang.pod_groups_by != OPERATOR:
            yield Violation(
                f"the operator creates a group for every job (--{_FLAG}={flag}), but the settings select "
                f"{gang.scheduler}{creator}: pods wait for both groups",
                f"kubectl edit {deployments.format_kubectl_name(operator)}  # remove --{_FLAG} from the "
                "args, or set kfpytorch.gang.pod-groups-by to operator",
            )


@CHECKS.add()
def _check_gang_rejected(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster supports the selected gang scheduler."""
    # These checks report some of the same problems with a better remedy.
    better = (_check_gang_crd_missing, _check_pod_groups_not_created, queues.check_queue_missing)
    if any(violation for judge in better for violation in judge(facts)):
        return
    for each in facts.gang_problems:
        yield Violation(f"{each.field}: {each.value}: {each.message}", each.remedy)
