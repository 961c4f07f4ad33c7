"""Checks of the queue and the priority of a job."""

from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.quantity import Quantity
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map, get_texts
from backend_plugin.core.scheduling import gang_annotation
from backend_plugin.core.scheduling.adapter import SchedulerAdapter, SchedulerResource
from backend_plugin.core.scheduling.registry import list_schedulers
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.embedded.resources import parse_quantities


def _get_queues(facts: Facts) -> SchedulerResource | None:
    return facts.gang.adapter.queues if facts.gang.adapter is not None else None


def _find_queue_name(facts: Facts) -> str:
    """Return the job's queue in its gang scheduler, or the platform's default if the job names none."""
    summary = gang_annotation.read_gang_summary(get_text_map(facts.task.job, "metadata", "annotations"))
    # With queue admission, the summary has the queue of the admission instead.
    return facts.gang.queue if facts.gang.local_queue else summary.queue or facts.gang.queue


def _find_queue(facts: Facts) -> Manifest | None:
    return facts.find_object(Subject.QUEUES, _find_queue_name(facts))


def _list_queues(facts: Facts) -> list[Manifest]:
    """Return the queue of the job, and the queue to which it belongs, if they exist."""
    return [each for each in (_find_queue(facts), _find_parent_queue(facts)) if each is not None]


CHECKS: Final = CheckList()


@CHECKS.add(Subject.QUEUES)
def check_queue_missing(facts: Facts) -> Iterator[Violation]:
    """The queue of the job exists."""
    name, queues = _find_queue_name(facts), _get_queues(facts)
    if queues is not None and name and Subject.QUEUES in facts.objects and _find_queue(facts) is None:
        existing = ", ".join(sorted(map(deployments.get_name, facts.get_objects(Subject.QUEUES)))) or "none"
        parents = map(deployments.get_name, facts.get_objects(Subject.PARENT_QUEUES))
        written = queues.example.replace("PARENT", min(parents, default="default"))
        manifest = written.replace("NAMESPACE", facts.namespace).replace("NAME", name)
        yield Violation(
            f"{facts.gang.scheduler} has no queue {name}; its queues: {existing}",
            f"echo '{manifest}' | kubectl apply -f -",
        )


def _find_parent_queue(facts: Facts) -> Manifest | None:
    queues = _get_queues(facts)
    name = get_text(_find_queue(facts), "spec", queues.parent_field if queues is not None else "")
    return facts.find_object(Subject.PARENT_QUEUES, name)


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_queue_outdated(facts: Facts) -> Iterator[Violation]:
    """For this kind of job, the queue's scheduler applies the node selectors of the queue's flavors."""
    kind = facts.task.dialect.name
    for adapter, oldest in _iter_oldest_versions(facts):
        for each in facts.get_objects(Subject.DEPLOYMENTS):
            version = deployments.find_version(each)
            if deployments.has_program(each, adapter.program) and version is not None and version < oldest:
                yield Violation(
                    f"{adapter.title} is {deployments.format_version(version)}, which does not pass the "
                    f"node selectors and tolerations of its flavors to the pods of a {kind}",
                    f"install {adapter.title} {deployments.format_version(oldest)} or newer: "
                    f"{deployments.format_kubectl_name(each)}",
                )


def _iter_oldest_versions(facts: Facts) -> Iterator[tuple[SchedulerAdapter, tuple[int, int, int]]]:
    """Yield each scheduler with a queue of the job, and the oldest version that supports this kind of job."""
    labels = get_mapping(facts.task.job, "metadata", "labels")
    for each in list_schedulers().values():
        oldest = each.oldest.get(facts.task.dialect.name)
        if oldest is not None and each.queues is not None and get_text(labels, each.queues.label):
            yield each, oldest


@CHECKS.add(Subject.QUEUES, Subject.PARENT_QUEUES)
def _check_queue_closed(facts: Facts) -> Iterator[Violation]:
    """The queue of the job accepts jobs."""
    for each in _list_queues(facts):
        if why := _find_closed_reason(each):
            yield Violation(
                f"the queue {deployments.get_name(each)} accepts no jobs: {why}",
                f"kubectl describe {_format_kubectl_name(each)}",
            )


def _format_kubectl_name(queue: Manifest) -> str:
    group = get_text(queue, "apiVersion").partition("/")[0]
    namespace = deployments.get_namespace(queue)
    where = f" -n {namespace}" if namespace else ""
    return f"{get_text(queue, 'kind').lower()}.{group} {deployments.get_name(queue)}{where}"


def _find_closed_reason(queue: Manifest) -> str:
    """Return why a queue accepts no jobs; empty if it accepts jobs."""
    for each in get_mappings(queue, "status", "conditions"):
        if (get_text(each, "type"), get_text(each, "status")) == ("Active", "False"):
            return get_text(each, "message") or "is not active"
    state, stopped = get_text(queue, "status", "state"), get_text(queue, "spec", "stopPolicy")
    if state in ("Closed", "Closing"):
        return f"is {state}"
    return "" if stopped in ("", "None") else f"is {stopped}"


@CHECKS.add(Subject.QUEUES, Subject.PARENT_QUEUES, Subject.ROLES)
def _check_queue_too_small(facts: Facts) -> Iterator[Violation]:
    """The queue of the job has enough quota for the job."""
    counts_all = facts.gang.adapter is not None and facts.gang.adapter.counts_all
    compute = role_pods.compute_all_requests if counts_all else role_pods.compute_needed_requests
    # A queue in a cohort has no known maximum, because it may borrow quota.
    for each in _list_queues(facts):
        most = _read_maximum(each)
        for resource, amount in compute(facts.task).items():
            if resource in most and amount > most[resource]:
                yield Violation(
                    f"the queue {deployments.get_name(each)} has {most[resource].text} {resource} at most, "
                    f"and the job needs {amount.text}",
                    f"kubectl edit {_format_kubectl_name(each)}  # {resource}: {amount.text}",
                )


def _read_maximum(queue: Manifest) -> Mapping[str, Quantity]:
    spec = get_mapping(queue, "spec")
    texts = dict(get_text_map(spec, "capability"))
    if not get_text(spec, "cohort") and not get_text(spec, "cohortName"):
        for group in get_mappings(spec, "resourceGroups"):
            for flavor in get_mappings(group, "flavors"):
                for each in get_mappings(flavor, "resources"):
                    texts[get_text(each, "name")] = str(each.get("nominalQuota", ""))
    return parse_quantities(texts)


@CHECKS.add(Subject.QUEUES, Subject.PARENT_QUEUES, Subject.ROLES)
def _check_queue_uncovered(facts: Facts) -> Iterator[Violation]:
    """The ClusterQueue of the job covers the resources that the job requests."""
    queue = _find_parent_queue(facts)
    if queue is None:
        return
    groups = get_mappings(queue, "spec", "resourceGroups")
    covered = {name for group in groups for name in get_texts(group, "coveredResources")}
    for resource in sorted(set(role_pods.compute_needed_requests(facts.task)) - covered):
        yield Violation(
            f"the ClusterQueue {deployments.get_name(queue)} does not cover {resource}, and admits no job "
            "that requests it",
            f"kubectl edit clusterqueue {deployments.get_name(queue)}  # coveredResources: [{resource}]",
        )


@CHECKS.add(Subject.PRIORITIES, Subject.ROLES)
def _check_priority_class_missing(facts: Facts) -> Iterator[Violation]:
    """The PriorityClasses of the job's pods exist."""
    named = [get_text(role.spec, "priorityClassName") for role in facts.task.roles]
    for name in facts.list_missing_names(Subject.PRIORITIES, named):
        yield Violation(
            f"there is no PriorityClass {name}, so the cluster rejects pods with this name",
            f"kubectl create priorityclass {name} --value=1000",
        )


@CHECKS.add(Subject.JOB_PRIORITIES, Subject.ROLES)
def _check_workload_priority_class_missing(facts: Facts) -> Iterator[Violation]:
    """The WorkloadPriorityClass of the job exists."""
    adapter = facts.gang.adapter
    if adapter is None or adapter.priorities is None:
        return
    name = get_text(facts.task.job, "metadata", "labels", adapter.priorities.label)
    for missing in facts.list_missing_names(Subject.JOB_PRIORITIES, [name]):
        manifest = adapter.priorities.example.replace("NAME", missing)
        yield Violation(
            f"{adapter.title} has no {adapter.priorities.kind} {missing}",
            f"echo '{manifest}' | kubectl apply -f -",
        )
