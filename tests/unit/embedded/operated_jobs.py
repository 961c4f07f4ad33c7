"""Builders for jobs and pods as input of the controller, and accessors for its result."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from backend_plugin.embedded.operators.base import JobSnapshot, ReconcileResult
from backend_plugin.embedded.operators.pytorchjob import reconcile

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LABEL = "training.kubeflow.org/"
Manifest = dict[str, Any]


def a_role(**fields: Any) -> Manifest:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    return {"replicas": 1, "restartPolicy": "Never", "template": template, **fields}


def a_job(*, master: Any = None, worker: Any = None, status: Any = None, **spec: Any) -> Manifest:
    """Build a stored job; `master` and `worker` contain the fields of their replica roles."""
    roles = {
        name: a_role(**role) for name, role in (("Master", master), ("Worker", worker)) if role is not None
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": "ns", "uid": "uid-job"},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
        **({"status": status} if status else {}),
    }


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stamp(seconds: float = 0) -> str:
    return after(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_condition(kind: str) -> Manifest:
    return {
        "type": kind,
        "status": "True",
        "reason": f"PyTorchJob{kind}",
        "message": "as it was said",
        "lastUpdateTime": stamp(),
        "lastTransitionTime": stamp(),
    }


def a_pod(short: str, phase: str, **status: Any) -> Manifest:
    """Build a pod of the job. Options: `exit`, `restarts`, `deleted` (seconds from NOW)."""
    role, _, index = short.partition("-")
    labels = {"operator-name": "pytorchjob-controller", "job-name": "job", "replica-type": role}
    metadata: Manifest = {
        "name": f"job-{short}",
        "namespace": "ns",
        "creationTimestamp": stamp(),
        "labels": {LABEL + key: value for key, value in {**labels, "replica-index": index}.items()},
        "ownerReferences": [{"kind": "PyTorchJob", "name": "job", "uid": "uid-job", "controller": True}],
    }
    if "deleted" in status:
        metadata["deletionTimestamp"] = stamp(status["deleted"])
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, **_containers(status)}}


def _containers(status: Mapping[str, Any]) -> Manifest:
    state: Manifest = {"running": {}}
    if "exit" in status:
        state = {"terminated": {"exitCode": status["exit"], "reason": "Error"}}
    elif "restarts" not in status:
        return {}
    restarts = status.get("restarts", 0)
    return {"containerStatuses": [{"name": "pytorch", "restartCount": restarts, "state": state}]}


def run_controller(job: Manifest, *pods: Manifest, now: datetime = NOW) -> ReconcileResult:
    """Run one reconcile pass with a service for every pod."""
    kept = ("name", "namespace", "labels", "ownerReferences")
    services = [{"metadata": {key: pod["metadata"][key] for key in kept}} for pod in pods]
    return reconcile(JobSnapshot(job=job, pods=pods, services=services, now=now))


def conditions(step: ReconcileResult) -> list[str]:
    """Return the conditions of the new status, in order."""
    return [f"{each['type']}={each['status']}" for each in step.status["conditions"]]


def list_actions(step: ReconcileResult) -> list[str]:
    """Return the actions of a pass that creates nothing, as text."""
    return [f"{type(action).__name__} {getattr(action, 'name', '')}".strip() for action in step.actions]
