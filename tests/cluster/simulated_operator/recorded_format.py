"""The observed state of a namespace, in the format of `tests/recorded`."""

from collections.abc import Mapping
from typing import Any

from watching import pod_of, service_of

from simulated_operator.mirror import Stage

Manifest = Mapping[str, Any]
_COUNTS = ("active", "succeeded", "failed")
_CONDITION = ("type", "status", "reason", "message")


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
    replicas = status.get("replicaStatuses") or {}
    return {
        "conditions": [_condition(each, namespace) for each in status.get("conditions") or ()],
        "replicaStatuses": {
            role: {key: each[key] for key in _COUNTS if key in each} for role, each in replicas.items()
        },
        **{
            name: 1 + times.index(status[name]) if status.get(name) else None
            for name, times in stage.times.items()
        },
    }


def _condition(condition: Manifest, namespace: str) -> Manifest:
    message = condition["message"].replace(f"{namespace}/", "NS/")
    return {**{key: condition[key] for key in _CONDITION}, "message": message}
