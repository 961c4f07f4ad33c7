"""Reads a PyTorchJob. The types of its conditions are those that `core.job_conditions` defines."""

from datetime import timedelta
from typing import Any, Final, TypedDict

from backend_plugin.core.conditions import read_conditions
from backend_plugin.core.dialects.pytorchjob.resource import REPLICA_SPECS, RESOURCE
from backend_plugin.core.job_metadata import JobMetadataFields, read_job_metadata, read_replica_count
from backend_plugin.core.observed import Job, ReplicaSpec
from backend_plugin.core.reading import get_int, get_interned, get_mapping, get_text, get_time
from backend_plugin.core.values import Manifest

ENDING_DEADLINE: Final = 1
"""The `activeDeadlineSeconds` that the server sets to end a job."""


# The values of scalar fields may have any type, because the reader checks them.
class _Replicas(TypedDict, total=False):
    replicas: Any
    restartPolicy: Any


class _JobSpec(TypedDict, total=False):
    pytorchReplicaSpecs: dict[str, _Replicas]
    runPolicy: dict[str, Any] | None
    elasticPolicy: dict[str, Any] | None
    nprocPerNode: Any


class _JobStatus(TypedDict, total=False):
    conditions: list[dict[str, Any]] | None
    startTime: Any
    completionTime: Any


class JobFields(TypedDict, total=False):
    """The fields of a PyTorchJob that `read_job` uses."""

    kind: Any
    apiVersion: Any
    metadata: JobMetadataFields
    spec: _JobSpec
    status: _JobStatus | None


def read_job(manifest: Manifest) -> Job:
    """Read a PyTorchJob as the API server returns it."""
    spec, status = get_mapping(manifest, "spec"), get_mapping(manifest, "status")
    policy, elastic = get_mapping(spec, "runPolicy"), get_mapping(spec, "elasticPolicy")
    deadline = get_int(policy, "activeDeadlineSeconds")
    return Job(
        dialect=RESOURCE.kind,
        **read_job_metadata(manifest),
        groups=_read_replica_specs(get_mapping(spec, REPLICA_SPECS)),
        elastic=bool(elastic),
        scales=get_int(elastic, "minReplicas") != get_int(elastic, "maxReplicas"),
        nproc_per_node=get_int(spec, "nprocPerNode") or get_int(elastic, "nProcPerNode"),
        clean_pod_policy=get_interned(policy, "cleanPodPolicy"),
        active_deadline=None if deadline is None or deadline < 0 else timedelta(seconds=deadline),
        ending=deadline == ENDING_DEADLINE or (is_suspended(manifest) and not status.get("startTime")),
        conditions=read_conditions(status),
        started=get_time(status, "startTime"),
        completed=get_time(status, "completionTime"),
        expires=get_int(policy, "ttlSecondsAfterFinished") is not None,
    )


def _read_replica_specs(specs: Manifest) -> tuple[ReplicaSpec, ...]:
    by_role = {role.lower(): get_mapping(specs, role) for role in specs}
    return tuple(
        ReplicaSpec(
            role=role,
            replicas=read_replica_count(by_role[role], "replicas"),
            restarts=get_text(by_role[role], "restartPolicy") in ("Always", "ExitCode", "OnFailure"),
        )
        for role in ("master", "worker")
        if role in by_role
    )


def is_suspended(manifest: Manifest) -> bool:
    """True if the spec of the job suspends it."""
    return get_mapping(manifest, "spec", "runPolicy").get("suspend") is True
