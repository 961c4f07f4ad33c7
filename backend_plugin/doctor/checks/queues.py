"""Checks of the queue and the priority of a job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map, get_texts
from backend_plugin.core.scheduling import gang_annotation, pod_requests
from backend_plugin.core.scheduling.adapter import SchedulerAdapter, SchedulerResource
from backend_plugin.core.scheduling.registry import ADMISSION_SCHEDULER, list_schedulers
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.kubectl_commands import build_apply_command
from backend_plugin.embedded.resources import parse_quantities
from kfpytorch_common.quantity import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobQueue:
    """A queue in which the job waits: one of its gang scheduler, or one of Kueue if Kueue admits the job."""

    scheduler: str
    adapter: SchedulerAdapter
    resource: SchedulerResource
    name: str


def _list_job_queues(facts: Facts) -> list[_JobQueue]:
    """Return the queues of the job, or the platform's default queues if the job names none."""
    gang = facts.gang
    summary = gang_annotation.read_gang_summary(get_text_map(facts.task.job, "metadata", "annotations"))
    # If there is an admission queue, the summary contains this queue and not that of the gang scheduler.
    names = {gang.scheduler: gang.queue if gang.local_queue else summary.queue or gang.queue}
    if gang.local_queue:
        names[ADMISSION_SCHEDULER] = summary.queue or gang.local_queue
    adapters = list_schedulers()
    return [
        _JobQueue(scheduler=scheduler, adapter=adapter, resource=adapter.queues, name=name)
        for scheduler, name in names.items()
        if name and (adapter := adapters.get(scheduler)) is not None and adapter.queues is not None
    ]


def _find_queue(facts: Facts, queue: _JobQueue) -> Manifest | None:
    known = _list_known_queues(facts, queue)
    return next((each for each in known if deployments.get_name(each) == queue.name), None)


def _list_known_queues(facts: Facts, queue: _JobQueue) -> list[Manifest]:
    """Return the manifests of all existing queues whose API group is that of `queue`."""
    return [each for each in facts.get_objects(Subject.QUEUES) if _get_group(each) == queue.resource.group]


def _get_group(manifest: Manifest) -> str:
    return get_text(manifest, "apiVersion").partition("/")[0]


def _find_parent_queue(facts: Facts, queue: _JobQueue) -> Manifest | None:
    name = get_text(_find_queue(facts, queue), "spec", queue.resource.parent_field)
    return facts.find_object(Subject.PARENT_QUEUES, name)


def _iter_queues(facts: Facts) -> Iterator[tuple[_JobQueue, Manifest]]:
    """Yield each queue of the job twice: with its own manifest, and with the manifest of its parent queue.

    A queue is not yielded with a manifest that does not exist.
    """
    for queue in _list_job_queues(facts):
        for each in (_find_queue(facts, queue), _find_parent_queue(facts, queue)):
            if each is not None:
                yield queue, each


CHECKS: Final = CheckList()


@CHECKS.add(Subject.QUEUES)
def check_queue_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the queues of the job exist."""
    for queue in _list_job_queues(facts):
        if Subject.QUEUES not in facts.objects or _find_queue(facts, queue) is not None:
            continue
        known = _list_known_queues(facts, queue)
        existing = ", ".join(sorted(map(deployments.get_name, known))) or "none"
        parents = map(deployments.get_name, facts.get_objects(Subject.PARENT_QUEUES))
        written = queue.resource.example.replace("PARENT", min(parents, default="default"))
        manifest = written.replace("NAMESPACE", facts.namespace).replace("NAME", queue.name)
        yield Violation(
            f"{queue.scheduler} has no queue {queue.name}; its queues: {existing}",
            build_apply_command(manifest),
        )


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_queue_outdated(facts: Facts) -> Iterator[Violation]:
    """Check that the queue's scheduler is new enough to set node selectors of flavors in this kind of job."""
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
    """Yield each scheduler of a queue that the job names, and its oldest version for this kind of job."""
    labels = get_mapping(facts.task.job, "metadata", "labels")
    for each in list_schedulers().values():
        oldest = each.oldest.get(facts.task.dialect.name)
        if oldest is not None and each.queues is not None and get_text(labels, each.queues.label):
            yield each, oldest


@CHECKS.add(Subject.QUEUES, Subject.PARENT_QUEUES)
def _check_queue_closed(facts: Facts) -> Iterator[Violation]:
    """Check that the queues of the job accept jobs."""
    for _, each in _iter_queues(facts):
        if why := _find_closed_reason(each):
            yield Violation(
                f"the queue {deployments.get_name(each)} accepts no jobs: {why}",
                f"kubectl describe {_format_kubectl_name(each)}",
            )


def _format_kubectl_name(queue: Manifest) -> str:
    namespace = deployments.get_namespace(queue)
    where = f" -n {namespace}" if namespace else ""
    return f"{get_text(queue, 'kind').lower()}.{_get_group(queue)} {deployments.get_name(queue)}{where}"


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
    """Check that the queues of the job have enough quota for the job."""
    # A queue in a cohort has no known maximum, because it may borrow quota.
    for queue, each in _iter_queues(facts):
        counts_all, most = queue.adapter.counts_all, _read_maximum(each)
        compute = role_pods.compute_all_requests if counts_all else role_pods.compute_needed_requests
        for resource, amount in compute(facts.task).items():
            if resource in most and amount > most[resource]:
                yield Violation(
                    f"the queue {deployments.get_name(each)} has {most[resource].text} {resource} at most, "
                    f"and the job needs {amount.text}",
                    f"kubectl edit {_format_kubectl_name(each)}  # {resource}: {amount.text}",
                )


def _read_maximum(queue: Manifest) -> Mapping[str, Quantity]:
    spec = get_mapping(queue, "spec")
    most = parse_quantities(get_text_map(spec, "capability"))
    if get_text(spec, "cohort") or get_text(spec, "cohortName"):
        return most
    # Different roles of a job may use different flavors.
    flavors = [
        parse_quantities({get_text(each, "name"): str(each.get("nominalQuota", "")) for each in resources})
        for group in get_mappings(spec, "resourceGroups")
        for flavor in get_mappings(group, "flavors")
        if (resources := get_mappings(flavor, "resources"))
    ]
    return {**most, **pod_requests.add_amounts(flavors)}


@CHECKS.add(Subject.QUEUES, Subject.PARENT_QUEUES, Subject.ROLES)
def _check_queue_uncovered(facts: Facts) -> Iterator[Violation]:
    """Check that the ClusterQueue of the job covers the resources that the job requests."""
    job_queues = _list_job_queues(facts)
    for queue in [each for name in job_queues if (each := _find_parent_queue(facts, name)) is not None]:
        groups = get_mappings(queue, "spec", "resourceGroups")
        covered = {name for group in groups for name in get_texts(group, "coveredResources")}
        for resource in sorted(set(role_pods.compute_needed_requests(facts.task)) - covered):
            yield Violation(
                f"the ClusterQueue {deployments.get_name(queue)} does not cover {resource}, and admits no "
                "job that requests it",
                f"kubectl edit clusterqueue {deployments.get_name(queue)}  # coveredResources: [{resource}]",
            )


@CHECKS.add(Subject.PRIORITIES, Subject.ROLES)
def _check_priority_class_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the PriorityClasses of the job's pods exist."""
    named = [get_text(role.spec, "priorityClassName") for role in facts.task.roles]
    for name in facts.list_missing_names(Subject.PRIORITIES, named):
        yield Violation(
            f"there is no PriorityClass {name}, so the cluster rejects pods with this name",
            f"kubectl create priorityclass {name} --value=1000",
        )


@CHECKS.add(Subject.JOB_PRIORITIES, Subject.ROLES)
def _check_workload_priority_class_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the WorkloadPriorityClass of the job exists."""
    adapter = facts.gang.adapter
    if adapter is None or adapter.priorities is None:
        return
    name = get_text(facts.task.job, "metadata", "labels", adapter.priorities.label)
    for missing in facts.list_missing_names(Subject.JOB_PRIORITIES, [name]):
        manifest = adapter.priorities.example.replace("NAME", missing)
        yield Violation(
            f"{adapter.title} has no {adapter.priorities.kind} {missing}", build_apply_command(manifest)
        )
