"""Readers of pods, events and whole jobs; they accept any JSON and never raise."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Final

from backend_plugin.core.conditions import read_conditions, read_pod_group
from backend_plugin.core.dialects import table
from backend_plugin.core.error_files import read_error_file
from backend_plugin.core.names import PLACE, PLACE_OF
from backend_plugin.core.observed import Container, ContainerTermination, Event, Observed, Pod
from backend_plugin.core.reading import (
    get_bounded_text,
    get_int,
    get_interned,
    get_mapping,
    get_mappings,
    get_text,
    get_time,
    intern_text,
)
from backend_plugin.core.values import Manifest

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def read_observed(manifests: Manifest) -> Observed:
    """Read a job's state from the keys ``job, pods, events, pod_groups, error_files, outputs``."""
    job, outputs = get_mapping(manifests, "job"), manifests.get("outputs")
    observed = Observed(
        job=table.read_job(job) if job else None,
        pods=tuple(map(read_pod, get_mappings(manifests, "pods"))),
        events=tuple(map(read_event, get_mappings(manifests, "events"))),
        pod_groups=tuple(map(read_pod_group, get_mappings(manifests, "pod_groups"))),
        error_files=tuple(map(read_error_file, get_mappings(manifests, "error_files"))),
        outputs=outputs if isinstance(outputs, bool) else None,
    )
    return table.interpret(observed)


def read_pod(manifest: Manifest) -> Pod:
    """Read a pod as the API server returns it."""
    metadata, spec, status = (get_mapping(manifest, key) for key in ("metadata", "spec", "status"))
    labels = get_mapping(metadata, "labels")
    dialect = table.find_pod_dialect(labels)
    name = get_interned(metadata, "name")
    by_type = {condition.type: condition for condition in read_conditions(status)}
    role = get_text(labels, dialect.labels.role).lower()
    first = (get_int(labels, dialect.labels.first_index) or 0) if dialect.labels.first_index else 0
    disrupted = by_type.get("DisruptionTarget")
    return Pod(
        name=name,
        uid=get_text(metadata, "uid"),
        job_name=get_interned(labels, dialect.labels.job_name) or get_interned(labels, PLACE_OF),
        owners=tuple(get_interned(each, "uid") for each in get_mappings(metadata, "ownerReferences")),
        role=intern_text(dialect.labels.aliases.get(role, role)),
        index=max(0, (get_int(labels, dialect.labels.index) or 0) + first),
        attempt=max(0, get_int(labels, dialect.labels.attempt) or 0),
        trainer=dialect.container,
        place=get_interned(labels, PLACE),
        created=get_time(metadata, "creationTimestamp"),
        deleted=_compute_deletion_time(metadata),
        node=get_interned(spec, "nodeName"),
        hostname=get_interned(spec, "hostname") or name,
        phase=get_interned(status, "phase"),
        reason=get_interned(status, "reason"),
        message=get_bounded_text(status, "message"),
        started=get_time(status, "startTime"),
        scheduled=by_type.get("PodScheduled"),
        # The condition stays with the status False after a drain that was cancelled.
        disrupted=disrupted if disrupted is not None and disrupted.true else None,
        ready=by_type.get("Ready"),
        containers=tuple(_read_container(each) for each in get_mappings(status, "containerStatuses")),
        init_containers=tuple(
            _read_container(each, init=True) for each in get_mappings(status, "initContainerStatuses")
        ),
    )


def _compute_deletion_time(metadata: Manifest) -> datetime | None:
    # The deletionTimestamp of a pod is the end of its grace period.
    at = get_time(metadata, "deletionTimestamp")
    grace = timedelta(seconds=max(0, get_int(metadata, "deletionGracePeriodSeconds") or 0))
    return at - grace if at is not None and at - _EPOCH > grace else at


def _read_container(status: Manifest, *, init: bool = False) -> Container:
    state = get_mapping(status, "state")
    running, waiting = get_mapping(state, "running"), get_mapping(state, "waiting")
    return Container(
        name=get_interned(status, "name"),
        image=get_interned(status, "image"),
        id=get_text(status, "containerID"),
        init=init,
        waiting=get_interned(waiting, "reason"),
        waiting_message=get_bounded_text(waiting, "message"),
        running_since=get_time(running, "startedAt"),
        ended=_read_termination(state),
        last=_read_termination(get_mapping(status, "lastState")),
        restarts=max(0, get_int(status, "restartCount") or 0),
    )


def _read_termination(state: Manifest) -> ContainerTermination | None:
    terminated = state.get("terminated")
    if not isinstance(terminated, Mapping):
        return None
    return ContainerTermination(
        exit_code=get_int(terminated, "exitCode"),
        reason=get_interned(terminated, "reason"),
        message=get_bounded_text(terminated, "message"),
        started=get_time(terminated, "startedAt"),
        finished=get_time(terminated, "finishedAt"),
    )


def read_event(manifest: Manifest) -> Event:
    """Read an event of core/v1 or of events.k8s.io/v1."""
    regarding = get_mapping(manifest, "involvedObject") or get_mapping(manifest, "regarding")
    repeated = get_time(manifest, "series", "lastObservedTime")
    first = get_time(manifest, "eventTime") or get_time(manifest, "metadata", "creationTimestamp")
    at = get_time(manifest, "lastTimestamp") or repeated or first
    return Event(
        reason=get_text(manifest, "reason"),
        action=get_interned(manifest, "action"),
        message=get_bounded_text(manifest, "message") or get_bounded_text(manifest, "note"),
        kind=get_text(regarding, "kind"),
        name=get_text(regarding, "name"),
        warning=get_text(manifest, "type") == "Warning",
        at=at,
        message_at=at if repeated is None else first,
    )
