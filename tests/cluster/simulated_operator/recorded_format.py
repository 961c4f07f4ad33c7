"""The observed state of a namespace, in the format of `tests/recorded`."""

from collections.abc import Mapping
from typing import Any

from watching import pod_of, service_of, status_of

from simulated_operator.mirror import Stage

Manifest = Mapping[str, Any]


def observed(stage: Stage, namespace: str) -> dict[str, Any]:
    """Return the compared state of a namespace, without the responses that the player received."""
    found: dict[str, Any] = {
        "job": stage.job
        and {"spec": stage.job["spec"], "status": _status(stage.job.get("status", {}), stage, namespace)},
        "pods": [pod_of(pod, stage) for _, pod in sorted(stage.pods.items())],
        "services": [service_of(service, stage) for _, service in sorted(stage.services.items())],
    }
    if stage.job is None and stage.last_status is not None:
        found["last_status"] = _status(stage.last_status, stage, namespace)
    return found


def _status(status: Manifest, stage: Stage, namespace: str) -> Manifest:
    found = status_of(status, stage, namespace)
    replicas = found.pop("replicas")
    return {**found, "replicaStatuses": replicas}
