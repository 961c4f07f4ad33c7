"""Builders for objects of an embedded cluster with few fields, and a manual clock."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

Manifest = dict[str, Any]

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
AT_ONCE = "2026-01-01T00:00:00Z"


@dataclass(slots=True)
class Clock:
    now: datetime = field(default=BEGAN)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def job(name: str = "j", **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": "a"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def pod(name: str = "p", *containers: Manifest, owner: str = "", **spec: Any) -> Manifest:
    owners = [{"kind": "PyTorchJob", "uid": owner, "controller": True}] if owner else []
    labels = {"training.kubeflow.org/job-name": "j"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "labels": labels, "ownerReferences": owners},
        "spec": {"containers": list(containers), **spec},
        "status": {"phase": "Pending"},
    }


def container(name: str = "pytorch", limits: Manifest | None = None, **requests: str) -> Manifest:
    return {"name": name, "resources": {"requests": requests, "limits": limits or {}}}


def stored(manifest: Manifest, uid: str, **metadata: Any) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid, **metadata}}


def node(name: str, **capacity: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", **capacity}},
    }
