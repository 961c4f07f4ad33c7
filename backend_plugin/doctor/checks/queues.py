"""Checks of the queue and the priority of a job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.quantity import NotAQuantity, Quantity, parse
from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, pods
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject

_KUEUE: Final = "kueue.x-k8s.io/"
_GONE: Final = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queues:
    """The queue kind of a gang scheduler."""

    subject: Subject
    resource: str
    manifest: str
    """The manifest of a valid queue; ``NAME`` and ``NAMESPACE`` are placeholders."""


_QUEUES: Final[Mapping[str, _Queues]] = {
    "kueue": _Queues(
        subject=Subject.LOCAL_QUEUES,
        resource="localqueues.kueue.x-k8s.io -n NAMESPACE",
        manifest="{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: NAME, "
        "namespace: NAMESPACE}, spec: {clusterQueue: YOURS}}",
    ),
    "volcano": _Queues(
        subject=Subject.VOLCANO_QUEUES,
        resource="queues.scheduling.volcano.sh",
        manifest="{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: NAME}, "
        "spec: {weight: 1, reclaimable: true}}",
    ),
    "kai": _Queues(
        subject=Subject.KAI_QUEUES,
        resource="queues.scheduling.run.ai",
        manifest="{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: NAME}, spec: "
        "{parentQueue: "
        "default, resources: {gpu: {quota: -1, limit: -1, overQuotaWeight: 1}}}}",
    ),
}
"""The queue kinds by gang scheduler; YuniKorn has no objects for queues, and co-scheduling has no queues."""


def _wanted(facts: Facts) -> str:
    """Return the queue from the labels or the pod group of the job, else the platform's default."""
    labels = section(facts.task.job or {}, "metadata", "labels")
    said = text(labels, f"{_KUEUE}queue-name") or text(labels, "kai.scheduler/queue")
    policy = section(facts.task.job or {}, "spec", "runPolicy", "schedulingPolicy")
    groups = [text(section(each, "spec"), "queue") for each in facts.task.beside]
    return said or text(policy, "queue") or "".join(groups) or facts.gang.queue


def _found(facts: Facts) -> Manifest | None:
    queues = _QUEUES.get(facts.gang.scheduler)
    there = facts.of(queues.subject) if queues else ()
    return next((each for each in there if deployments.name(each) == _wanted(facts)), None)


def missing(facts: Facts) -> Iterator[Found]:
    """Report a missing queue of the job."""
    name, queues = _wanted(facts), _QUEUES.get(facts.gang.scheduler)
    if queues is not None and name and queues.subject in facts.seen and _found(facts) is None:
        there = ", ".join(sorted(map(deployments.name, facts.of(queues.subject)))) or "none"
        known = sorted(map(deployments.name, facts.of(Subject.CLUSTER_QUEUES)))
        written = queues.manifest.replace("YOURS", known[0] if known else "default")
        manifest = written.replace("NAMESPACE", facts.namespace).replace("NAME", name)
        yield Found(
            sentence=f"{facts.gang.scheduler} has no queue {name}; its queues: {there}",
            remedy=f"echo '{manifest}' | kubectl apply -f -",
        )


def _cluster_queue(facts: Facts) -> Manifest | None:
    name = text(section(_found(facts) or {}, "spec"), "clusterQueue")
    there = facts.of(Subject.CLUSTER_QUEUES)
    return next((each for each in there if deployments.name(each) == name), None)


def _closed(facts: Facts) -> Iterator[Found]:
    for each in filter(None, (_found(facts), _cluster_queue(facts))):
        state = text(section(each, "status"), "state")
        stopped = text(section(each, "spec"), "stopPolicy")
        inactive = _inactive(each)
        if state in ("Closed", "Closing") or stopped not in ("", _GONE) or inactive:
            why = inactive or f"is {state or stopped}"
            yield Found(
                sentence=f"the queue {deployments.name(each)} accepts no jobs: {why}",
                remedy=f"kubectl describe {_named(each)}",
            )


def _named(queue: Manifest) -> str:
    """Return the arguments by which kubectl finds the queue."""
    group = text(queue, "apiVersion").partition("/")[0]
    namespace = deployments.namespace(queue)
    where = f" -n {namespace}" if namespace else ""
    return f"{text(queue, 'kind').lower()}.{group} {deployments.name(queue)}{where}"


def _inactive(queue: Manifest) -> str:
    for each in entries(section(queue, "status"), "conditions"):
        if (text(each, "type"), text(each, "status")) == ("Active", "False"):
            return text(each, "message") or "is not active"
    return ""


def _too_small(facts: Facts) -> Iterator[Found]:
    """Report requests above a queue's own maximum; a queue in a cohort may borrow, so Kueue decides then."""
    for each in filter(None, (_found(facts), _cluster_queue(facts))):
        most = _most(each)
        for resource, amount in pods.needed(facts.task).items():
            if resource in most and amount > most[resource]:
                yield Found(
                    sentence=f"the queue {deployments.name(each)} has {most[resource].text} "
                    f"{resource} at most, "
                    f"and the job needs {amount.text}",
                    remedy=f"kubectl edit {_named(each)}  # {resource}: {amount.text}",
                )


def _most(queue: Manifest) -> Mapping[str, Quantity]:
    spec, found = section(queue, "spec"), dict[str, Quantity]()
    said = dict(texts(spec, "capability"))
    if not text(spec, "cohort") and not text(spec, "cohortName"):
        for group in entries(spec, "resourceGroups"):
            for flavor in entries(group, "flavors"):
                for each in entries(flavor, "resources"):
                    said[text(each, "name")] = str(each.get("nominalQuota", ""))
    for resource, amount in said.items():
        try:
            found[resource] = parse(amount)
        except NotAQuantity:
            continue
    return found


def _uncovered(facts: Facts) -> Iterator[Found]:
    queue = _cluster_queue(facts)
    if queue is None:
        return
    groups = entries(section(queue, "spec"), "resourceGroups")
    covered = {str(name) for group in groups for name in _list(group.get("coveredResources"))}
    for resource in sorted(set(pods.needed(facts.task)) - covered):
        yield Found(
            sentence=f"the ClusterQueue {deployments.name(queue)} does not cover {resource}, and "
            f"admits no job that requests it",
            remedy=f"kubectl edit clusterqueue {deployments.name(queue)}  # coveredResources: [{resource}]",
        )


def _list(said: object) -> list[object]:
    return list(said) if isinstance(said, list | tuple) else []


def _no_priority(facts: Facts) -> Iterator[Found]:
    there = set(map(deployments.name, facts.of(Subject.PRIORITIES)))
    wanted = {text(section(role.pod, "spec"), "priorityClassName") for role in facts.task.roles}
    for name in sorted(wanted - there - {""}):
        yield Found(
            sentence=f"there is no PriorityClass {name}, so the cluster rejects pods with this name",
            remedy=f"kubectl create priorityclass {name} --value=1000",
        )


def _no_workload_priority(facts: Facts) -> Iterator[Found]:
    labels = section(facts.task.job or {}, "metadata", "labels")
    name = text(labels, f"{_KUEUE}priority-class")
    if name and name not in map(deployments.name, facts.of(Subject.WORKLOAD_PRIORITIES)):
        manifest = _PRIORITY.replace("NAME", name)
        yield Found(
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
        level=Level.ERROR,
        proves="the queue of the job exists",
        judge=missing,
        needs=_ALL,
    ),
    Check(
        id="queue-closed",
        level=Level.ERROR,
        proves="the queue of the job accepts jobs",
        judge=_closed,
        needs=(*_ALL, Subject.CLUSTER_QUEUES),
    ),
    Check(
        id="queue-small",
        level=Level.ERROR,
        proves="the queue of the job has enough quota for the job",
        judge=_too_small,
        needs=(*_ALL, Subject.CLUSTER_QUEUES, Subject.ROLES),
    ),
    Check(
        id="queue-uncovered",
        level=Level.ERROR,
        proves="the ClusterQueue of the job covers the resources that the job requests",
        judge=_uncovered,
        needs=(Subject.LOCAL_QUEUES, Subject.CLUSTER_QUEUES, Subject.ROLES),
    ),
    Check(
        id="priority-missing",
        level=Level.ERROR,
        proves="the PriorityClasses of the job's pods exist",
        judge=_no_priority,
        needs=(Subject.PRIORITIES, Subject.ROLES),
    ),
    Check(
        id="workload-priority-missing",
        level=Level.ERROR,
        proves="the WorkloadPriorityClass of the job exists",
        judge=_no_workload_priority,
        needs=(Subject.WORKLOAD_PRIORITIES, Subject.ROLES),
    ),
)
