"""Reads a TrainJob from its manifest. The module `course` adds conditions that Trainer does not report."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, TypedDict

from msgspec import structs

from backend_plugin.core import job_conditions
from backend_plugin.core.conditions import Condition, read_conditions
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.dialects.trainjob.resource import INITIALIZERS, MANAGER, RESOURCE, ROLE
from backend_plugin.core.job_metadata import JobMetadataFields, read_job_metadata, read_replica_count
from backend_plugin.core.observed import Job, ReplicaSpec
from backend_plugin.core.reading import get_int, get_interned, get_mapping, get_mappings
from backend_plugin.core.values import Manifest

_CONDITIONS: Final[Mapping[str, str]] = {
    "Complete": job_conditions.SUCCEEDED,
    "Failed": job_conditions.FAILED,
    "Suspended": job_conditions.SUSPENDED,
}


# The values of scalar fields may have any type, because the reader checks them.
class _Trainer(TypedDict, total=False):
    numNodes: Any
    numProcPerNode: Any


class _Patch(TypedDict, total=False):
    manager: Any


class _JobSpec(TypedDict, total=False):
    trainer: _Trainer | None
    initializer: dict[str, Any] | None
    runtimePatches: list[_Patch] | None
    suspend: Any


class _JobStatus(TypedDict, total=False):
    conditions: list[dict[str, Any]] | None
    jobsStatus: Any


class JobFields(TypedDict, total=False):
    """The fields of a TrainJob that `read_job` uses."""

    kind: Any
    apiVersion: Any
    metadata: JobMetadataFields
    spec: _JobSpec
    status: _JobStatus | None


def read_job(manifest: Manifest) -> Job:
    """Read a TrainJob as the API server returns it."""
    spec, status = get_mapping(manifest, "spec"), get_mapping(manifest, "status")
    trainer, metadata = get_mapping(spec, "trainer"), read_job_metadata(manifest)
    job_options = options.decode(metadata["annotations"].get(options.ANNOTATION, ""))
    count = read_replica_count(trainer, "numNodes")
    managers = tuple(get_interned(each, "manager") for each in get_mappings(spec, "runtimePatches"))
    return Job(
        dialect=RESOURCE.kind,
        **metadata,
        # A disruption restarts nodes even if the restart policy is Never.
        groups=(ReplicaSpec(role=ROLE, replicas=count, restarts=True),),
        initializers=tuple(
            role for kind, role in INITIALIZERS.items() if get_mapping(spec, "initializer", kind)
        ),
        elastic=job_options.min_nodes is not None,
        scales=job_options.min_nodes is not None and job_options.min_nodes < count,
        launcher=job_options.launcher,
        nproc_per_node=get_int(trainer, "numProcPerNode"),
        # Trainer deletes no pod after the end.
        clean_pod_policy="None",
        ending=is_suspended(manifest),
        patch_managers=managers,
        lost_patch=job_options.named_runtime and MANAGER not in managers,
        owns_pods=False,
        conditions=_translate_conditions(status),
        expires=job_options.ttl_seconds is not None,
        ttl=None if job_options.ttl_seconds is None else timedelta(seconds=max(0, job_options.ttl_seconds)),
    )


def _translate_conditions(status: Manifest) -> tuple[Condition, ...]:
    read = read_conditions(status)
    conditions = [structs.replace(each, type=_CONDITIONS.get(each.type, each.type)) for each in read]
    if status.get("jobsStatus"):  # Trainer fills this field only after it has created the JobSet.
        conditions.append(Condition(type=job_conditions.CREATED, true=True))
    return tuple(conditions)


def read_without_pods(manifest: Manifest) -> Job:
    """Read a TrainJob without its pods: if its status reports a Job with all pods ready, it is running."""
    job = read_job(manifest)
    counts = get_mappings(manifest, "status", "jobsStatus")
    if job.end_condition is not None or not any(get_int(each, "ready") for each in counts):
        return job
    running = Condition(type=job_conditions.RUNNING, true=True)
    return structs.replace(job, conditions=(*job.conditions, running))


def is_suspended(manifest: Manifest) -> bool:
    """True if the spec of the job suspends it."""
    return get_mapping(manifest, "spec").get("suspend") is True
