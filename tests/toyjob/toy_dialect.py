"""A dialect for tests. Its names, its conditions and the layout of its spec are not those of a PyTorchJob."""

from datetime import timedelta
from typing import Any, TypedDict

from backend_plugin.core import job_conditions
from backend_plugin.core.conditions import Condition
from backend_plugin.core.dialects.base import Dialect, JobResource, ReplicaLabels, ReplicaPort
from backend_plugin.core.job_metadata import read_job_metadata
from backend_plugin.core.observed import Job, JobLimit, ReplicaSpec
from backend_plugin.core.reading import get_time

RESOURCE = JobResource(group="toys.example.com", version="v1beta1", kind="ToyJob", plural="toyjobs")
CONTAINER = "toy"
STATES = {
    "Accepted": job_conditions.CREATED,
    "Playing": job_conditions.RUNNING,
    "Done": job_conditions.SUCCEEDED,
    "Broken": job_conditions.FAILED,
}


class Fields(TypedDict, total=False):
    kind: Any
    apiVersion: Any
    metadata: dict[str, Any]
    spec: dict[str, Any]
    status: dict[str, Any] | None


def build(job, draft):
    teams = [
        {"team": group.role.value, "size": group.replicas, "pod": draft.pods[group.role]}
        for group in job.groups
    ]
    return {**_head(draft.metadata), "spec": {"teams": teams, "keep": job.run_policy.clean_pod_policy}}


def build_probe(metadata):
    return {**_head(metadata), "spec": {"teams": []}}


def _head(metadata):
    return {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": metadata}


def read(manifest):
    spec, status = manifest["spec"], manifest.get("status") or {}
    seconds = spec.get("seconds")
    return Job(
        dialect=RESOURCE.kind,
        **read_job_metadata(manifest),
        groups=tuple(ReplicaSpec(role=each["team"].lower(), replicas=each["size"]) for each in spec["teams"]),
        clean_pod_policy=spec.get("keep", ""),
        active_deadline=None if seconds is None else timedelta(seconds=seconds),
        conditions=tuple(
            Condition(type=STATES[each["state"]], true=True, since=get_time(each, "at"))
            for each in status.get("history", ())
        ),
        started=get_time(status, "began"),
        completed=get_time(status, "over"),
    )


def build_stop_spec(_):
    return {"keep": "None"}


DIALECT = Dialect(
    resource=RESOURCE,
    number=77,
    operator="toy-operator",
    container=CONTAINER,
    port=ReplicaPort(name="toy-port", number=4711),
    labels=ReplicaLabels(
        job_name="toys.example.com/job", role="toys.example.com/team", index="toys.example.com/number"
    ),
    longest_name=40,
    pod_suffix=r"-in-(?:master|worker)-\d{1,9}",
    build=build,
    build_pod_name=lambda job, role, index: f"{job.name}-in-{role}-{index}",
    build_probe=build_probe,
    read=read,
    fields=Fields,
    is_suspended=lambda manifest: manifest["spec"].get("paused") is True,
    end_spec={"seconds": 1, "keep": "Running"},
    suspend_spec={"paused": True},
    build_stop_spec=build_stop_spec,
    limits={"too late": JobLimit.DEADLINE},
    check_container=lambda *_: (),
    list_added_containers=lambda role, _: ({"name": "hold"},) if role.value == "Worker" else (),
    operator_containers=frozenset({"hold"}),
)
