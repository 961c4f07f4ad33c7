"""Checks of the queue and the priority of a job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.quantity import InvalidQuantity, Quantity, parse
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import Check, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.operators.table import get_operator

_KUEUE: Final = "kueue.x-k8s.io/"
_GONE: Final = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueKind:
    """The queue kind of a gang scheduler."""

    subject: Subject
    resource: str
    manifest: str
    """The manifest of a valid queue; ``NAME`` and ``NAMESPACE`` are placeholders."""


_QUEUES: Final[Mapping[str, _QueueKind]] = {
    "kueue": _QueueKind(
        subject=Subject.LOCAL_QUEUES,
        resource="localqueues.kueue.x-k8s.io -n NAMESPACE",
        manifest="{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: NAME, "
        "namespace: NAMESPACE}, spec: {clusterQueue: YOURS}}",
    ),
    "volcano": _QueueKind(
        subject=Subject.VOLCANO_QUEUES,
        resource="queues.scheduling.volcano.sh",
        manifest="{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: NAME}, "
        "spec: {weight: 1, reclaimable: true}}",
    ),
    "kai": _QueueKind(
        subject=Subject.KAI_QUEUES,
        resource="queues.scheduling.run.ai",
        manifest="{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: NAME}, spec: "
        "{parentQueue: default, resources: {gpu: {quota: -1, limit: -1, overQuotaWeight: 1}}}}",
    ),
}
"""The queue kinds by gang scheduler; YuniKorn has no objects for queues, and co-scheduling has no queues."""


def _find_queue_name(facts: Facts) -> str:
    """Return the queue from the labels or the pod group of the job, else the platform's default."""
    labels = get_mapping(facts.task.job or {}, "metadata", "labels")
    said = get_text(labels, f"{_KUEUE}queue-name") or get_text(labels, "kai.scheduler/queue")
    policy = get_operator(facts.task.job).read_group_policy(facts.task.job or {})
    groups = [get_text(get_mapping(each, "spec"), "queue") for each in facts.task.beside]
    return said or get_text(policy, "queue") or "".join(groups) or facts.gang.queue


def _find_queue(facts: Facts) -> Manifest | None:
    queues = _QUEUES.get(facts.gang.scheduler)
    there = facts.get_objects(queues.subject) if queues else ()
    return next((each for each in there if deployments.get_name(each) == _find_queue_name(facts)), None)


def check_queue_missing(facts: Facts) -> Iterator[Violation]:
    """Report a missing queue of the job."""
    name, queues = _find_queue_name(facts), _QUEUES.get(facts.gang.scheduler)
    if queues is not None and name and queues.subject in facts.seen and _find_queue(facts) is None:
        there = ", ".join(sorted(map(deployments.get_name, facts.get_objects(queues.subject)))) or "none"
        known = sorted(map(deployments.get_name, facts.get_objects(Subject.CLUSTER_QUEUES)))
        written = queues.manifest.replace("YOURS", known[0] if known else "default")
        manifest = written.replace("NAMESPACE", facts.namespace).replace("NAME", name)
        yield Violation(
            sentence=f"{facts.gang.scheduler} has no queue {name}; its queues: {there}",
            remedy=f"echo '{manifest}' | kubectl apply -f -",
        )


def _find_cluster_queue(facts: Facts) -> Manifest | None:
    name = get_text(get_mapping(_find_queue(facts) or {}, "spec"), "clusterQueue")
    there = facts.get_objects(Subject.CLUSTER_QUEUES)
    return next((each for each in there if deployments.get_name(each) == name), None)


def _check_queue_closed(facts: Facts) -> Iterator[Violation]:
    for each in filter(None, (_find_queue(facts), _find_cluster_queue(facts))):
        state = get_text(get_mapping(each, "status"), "state")
        stopped = get_text(get_mapping(each, "spec"), "stopPolicy")
        inactive = _get_inactive_reason(each)
        if state in ("Closed", "Closing") or stopped not in ("", _GONE) or inactive:
            why = inactive or f"is {state or stopped}"
            yield Violation(
                sentence=f"the queue {deployments.get_name(each)} accepts no jobs: {why}",
                remedy=f"kubectl describe {_format_kubectl_name(each)}",
            )


def _format_kubectl_name(queue: Manifest) -> str:
    """Return the arguments by which kubectl finds the queue."""
    group = get_text(queue, "apiVersion").partition("/")[0]
    namespace = deployments.get_namespace(queue)
    where = f" -n {namespace}" if namespace else ""
    return f"{get_text(queue, 'kind').lower()}.{group} {deployments.get_name(queue)}{where}"


def _get_inactive_reason(queue: Manifest) -> str:
    for each in get_mappings(get_mapping(queue, "status"), "conditions"):
        if (get_text(each, "type"), get_text(each, "status")) == ("Active", "False"):
            return get_text(each, "message") or "is not active"
    return ""


def _check_queue_too_small(facts: Facts) -> Iterator[Violation]:
    """Report requests above a queue's own maximum; a queue in a cohort may borrow, so Kueue decides then."""
    for each in filter(None, (_find_queue(facts), _find_cluster_queue(facts))):
        most = _read_maximum(each)
        for resource, amount in role_pods.compute_needed_requests(facts.task).items():
            if resource in most and amount > most[resource]:
                yield Violation(
                    sentence=f"the queue {deployments.get_name(each)} has {most[resource].text} "
                    f"{resource} at most, and the job needs {amount.text}",
                    remedy=f"kubectl edit {_format_kubectl_name(each)}  # {resource}: {amount.text}",
                )


def _read_maximum(queue: Manifest) -> Mapping[str, Quantity]:
    spec, found = get_mapping(queue, "spec"), dict[str, Quantity]()
    said = dict(get_text_map(spec, "capability"))
    if not get_text(spec, "cohort") and not get_text(spec, "cohortName"):
        for group in get_mappings(spec, "resourceGroups"):
            for flavor in get_mappings(group, "flavors"):
                for each in get_mappings(flavor, "resources"):
                    said[get_text(each, "name")] = str(each.get("nominalQuota", ""))
    for resource, amount in said.items():
        try:
            found[resource] = parse(amount)
        except InvalidQuantity:
            continue
    return found


def _check_queue_uncovered(facts: Facts) -> Iterator[Violation]:
    queue = _find_cluster_queue(facts)
    if queue is None:
        return
    groups = get_mappings(get_mapping(queue, "spec"), "resourceGroups")
    covered = {str(name) for group in groups for name in _get_list(group.get("coveredResources"))}
    for resource in sorted(set(role_pods.compute_needed_requests(facts.task)) - covered):
        yield Violation(
            sentence=f"the ClusterQueue {deployments.get_name(queue)} does not cover {resource}, and "
            f"admits no job that requests it",
            remedy=f"kubectl edit clusterqueue {deployments.get_name(queue)}  # coveredResources: "
            f"[{resource}]",
        )


def _get_list(said: object) -> list[object]:
    return list(said) if isinstance(said, list | tuple) else []


def _check_priority_class_missing(facts: Facts) -> Iterator[Violation]:
    there = set(map(deployments.get_name, facts.get_objects(Subject.PRIORITIES)))
    wanted = {get_text(get_mapping(role.pod, "spec"), "priorityClassName") for role in facts.task.roles}
    for name in sorted(wanted - there - {""}):
        yield Violation(
            sentence=f"there is no PriorityClass {name}, so the cluster rejects pods with this name",
            remedy=f"kubectl create priorityclass {name} --value=1000",
        )


def _check_workload_priority_class_missing(facts: Facts) -> Iterator[Violation]:
    labels = get_mapping(facts.task.job or {}, "metadata", "labels")
    name = get_text(labels, f"{_KUEUE}priority-class")
    if name and name not in map(deployments.get_name, facts.get_objects(Subject.WORKLOAD_PRIORITIES)):
        manifest = _PRIORITY.replace("NAME", name)
        yield Violation(
            sentence=f"Kueue has no WorkloadPriorityClass {name}",
            remedy=f"echo '{manifest}' | kubectl apply -f -",
        )


_PRIORITY: Final = (
    "{apiVersion: kueue.x-k8s.io/v1beta1, kind: WorkloadPriorityClass, metadata: {name: NAME}, value: 1000}"
)
_ALL: Final = tuple(each.subject for each in _QUEUES.values())
CHECKS: Final = (
    Check(
        id="queue-missing",
        level=Severity.ERROR,
        proves="the queue of the job exists",
        judge=check_queue_missing,
        needs=_ALL,
    ),
    Check(
        id="queue-closed",
        level=Severity.ERROR,
        proves="the queue of the job accepts jobs",
        judge=_check_queue_closed,
        needs=(*_ALL, Subject.CLUSTER_QUEUES),
    ),
    Check(
        id="queue-too-small",
        level=Severity.ERROR,
        proves="the queue of the job has enough quota for the job",
        judge=_check_queue_too_small,
        needs=(*_ALL, Subject.CLUSTER_QUEUES, Subject.ROLES),
    ),
    Check(
        id="queue-uncovered",
        level=Severity.ERROR,
        proves="the ClusterQueue of the job covers the resources that the job requests",
        judge=_check_queue_uncovered,
        needs=(Subject.LOCAL_QUEUES, Subject.CLUSTER_QUEUES, Subject.ROLES),
    ),
    Check(
        id="priority-class-missing",
        level=Severity.ERROR,
        proves="the PriorityClasses of the job's pods exist",
        judge=_check_priority_class_missing,
        needs=(Subject.PRIORITIES, Subject.ROLES),
    ),
    Check(
        id="workload-priority-class-missing",
        level=Severity.ERROR,
        proves="the WorkloadPriorityClass of the job exists",
        judge=_check_workload_priority_class_missing,
        needs=(Subject.WORKLOAD_PRIORITIES, Subject.ROLES),
    ),
)
