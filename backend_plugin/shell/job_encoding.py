"""Encoders for the gRPC messages that user commands receive: jobs, events, nodes and training runtimes."""

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from backend_plugin.core import foreign_jobs, job_lookup, names, printable, task_annotation
from backend_plugin.core.dialects import table
from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.judging.verdict_annotation import find_end_time
from backend_plugin.core.observed import Container, Event, Job, Observed, Pod, is_replica, read_conditions
from backend_plugin.core.reading import get_mapping, get_text, get_text_map
from backend_plugin.core.runtimes import Runtime, RuntimePackages
from backend_plugin.core.values import Manifest
from kfpytorch_idl.v1 import job_service_pb2 as wire

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
# More than a screen of events is not useful.
_MAX_EVENTS: Final = 30


def encode_summary(job: Job, verdict: Verdict) -> wire.Job:
    """Encode a job and its phase, without its replicas and events."""
    ready = verdict.info.get("ready")
    return wire.Job(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        attempt=_encode_attempt(job),
        created=_encode_time(job.created),
        ended=_encode_time(find_end_time(job)),
        total=job.replicas,
        ready=ready if isinstance(ready, int) else 0,
        verdict=_encode_verdict(verdict),
        kind=table.get_dialect(job.dialect).name,
    )


def encode_foreign_job(job: Job) -> wire.Job:
    """Encode a job that this backend did not create."""
    message = encode_summary(job, foreign_jobs.describe(job))
    message.foreign = True
    return message


def encode_runtime(runtime: Runtime) -> wire.Runtime:
    """Encode a training runtime."""
    return wire.Runtime(
        namespace=runtime.namespace,
        name=runtime.name,
        kind=runtime.kind,
        framework=printable.escape(runtime.framework),
        nodes=runtime.nodes,
        processes_per_node=printable.escape(runtime.processes),
        device=printable.escape(runtime.device),
        device_count=printable.escape(runtime.device_count),
        image=printable.escape(runtime.image),
        job=runtime.job,
    )


def encode_packages(runtime: Runtime, packages: RuntimePackages) -> wire.RuntimePackages:
    """Encode the Python packages in the image of a training runtime."""
    return wire.RuntimePackages(
        runtime=encode_runtime(runtime),
        python=printable.escape(packages.python),
        packages=[
            wire.Package(name=printable.escape(name), version=printable.escape(version))
            for name, version in packages.packages.items()
        ],
        gpus=packages.gpus,
    )


def encode_job(job: Job, observed: Observed, verdict: Verdict) -> wire.Job:
    """Encode a job and its phase, with its replicas and latest events."""
    message = encode_summary(job, verdict)
    pods = {pod.name: pod for pod in (*observed.initializers, *observed.pods)}.values()
    own = [pod for pod in pods if pod.role and is_replica(pod, job)]
    own.sort(key=lambda pod: (pod.role, pod.index, pod.name))
    message.replicas.extend(_encode_replica(job, pod) for pod in own)
    by_time = sorted(observed.events, key=lambda event: event.at or _LONG_AGO)
    message.events.extend(map(_encode_event, by_time[-_MAX_EVENTS:]))
    return message


def _encode_attempt(job: Job) -> wire.Attempt:
    recorded = task_annotation.read(job.annotations, job.namespace)
    prefix = job.annotations.get(names.OUTPUT_PREFIX, "")
    if recorded is None:
        return wire.Attempt(output_prefix=prefix)
    run = recorded.run
    return wire.Attempt(
        project=run.project,
        domain=run.domain,
        execution=run.execution,
        node_id=run.node_id,
        attempt=run.attempt,
        task=run.task_name,
        output_prefix=prefix,
    )


def _encode_verdict(verdict: Verdict) -> wire.Verdict:
    return wire.Verdict(
        phase=verdict.phase.value,
        reason=verdict.reason,
        message=verdict.message,
        cause=verdict.cause.value if verdict.cause else None,
        retry=verdict.retry,
        logs=[wire.LogLink(name=link.name, uri=link.uri) for link in verdict.logs],
    )


def _encode_replica(job: Job, pod: Pod) -> wire.Replica:
    container = pod.primary
    ended = container.ended if container else None
    ranks = job_lookup.find_replica_ranks(job, pod.role, pod.index)
    return wire.Replica(
        role=pod.role,
        index=pod.index,
        pod=pod.name,
        first_rank=ranks.start if ranks else None,
        ranks=len(ranks) if ranks else None,
        phase=pod.phase,
        reason=printable.escape(_find_reason(pod, container)),
        node=pod.node,
        restarts=container.restarts if container else 0,
        exit_code=ended.exit_code if ended else None,
        started=_encode_time(_find_start_time(container)),
        ended=_encode_time(ended.finished if ended else None),
    )


def _find_start_time(container: Container | None) -> datetime | None:
    if container is None:
        return None
    return container.ended.started if container.ended else container.running_since


def _find_reason(pod: Pod, container: Container | None) -> str:
    scheduled = pod.scheduled.reason if pod.scheduled and not pod.scheduled.true else ""
    waits = [each.waiting for each in pod.init_containers]
    of_container = (container.waiting, container.ended.reason if container.ended else "") if container else ()
    return next(filter(None, (pod.reason, scheduled, *of_container, *waits)), "")


def _encode_event(event: Event) -> wire.Event:
    return wire.Event(
        at=_encode_time(event.at),
        warning=event.warning,
        reason=printable.escape(event.reason),
        message=printable.escape(event.message),
        kind=event.kind,
        name=event.name,
    )


def encode_node(manifest: Manifest, pods: Iterable[tuple[str, Pod]]) -> wire.Node:
    """Encode a node from its manifest, with those of `pods` (namespace and pod) that run on the node."""
    name = get_text(manifest, "metadata", "name")
    return wire.Node(
        name=name,
        state=_get_node_state(manifest),
        allocatable=get_text_map(manifest, "status", "allocatable"),
        pods=sorted(
            f"{namespace}/{pod.name}"
            for namespace, pod in pods
            if pod.node == name and pod.phase in ("Pending", "Running")
        ),
    )


def _get_node_state(manifest: Manifest) -> wire.NodeState:
    if any(
        each.type == "Ready" and not each.true for each in read_conditions(get_mapping(manifest, "status"))
    ):
        return wire.NODE_STATE_NOT_READY
    unschedulable = get_mapping(manifest, "spec").get("unschedulable") is True
    return wire.NODE_STATE_DRAINED if unschedulable else wire.NODE_STATE_READY


def _encode_time(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    message = Timestamp()
    message.FromDatetime(moment)
    return message
