"""Builders for a waiting gang and for the objects of its schedulers and queues."""

import json

from cluster import at, condition, job, verdict
from cluster_pods import pod

from backend_plugin.core.names import PLACE, PLACE_OF
from backend_plugin.core.scheduling import gang_annotation

ASKS = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"}


def gang(*conditions, workers=4, started=1, **fields):
    """Return a job with a master and some workers that request two GPUs each."""
    counts = {"master": 1, "worker": workers}
    roles = [{"name": name, "count": count, "requests": ASKS} for name, count in counts.items()]
    made = job(*conditions, workers=workers, started=started)
    made["metadata"]["annotations"] = {gang_annotation.ANNOTATION: json.dumps({"roles": roles, **fields})}
    return made


def members(workers=4, *conditions):
    names = ["master-0", *(f"worker-{index}" for index in range(workers))]
    return [pod(name, "Pending", node="", conditions=list(conditions)) for name in names]


def build_waiting_members(message, workers=4, reason="Unschedulable"):
    return members(workers, condition("PodScheduled", "False", since=2, reason=reason, message=message))


def holder(name, role, *conditions, node=""):
    labels = {PLACE: role, PLACE_OF: "j"}
    return {
        "metadata": {"name": f"tg-j-{role}-{name}", "labels": labels, "creationTimestamp": at(2)},
        "spec": {"nodeName": node},
        "status": {"phase": "Running" if node else "Pending", "conditions": list(conditions)},
    }


def event(message, *, name="j-master-0", kind="Pod", **fields):
    about = {"kind": kind, "name": name}
    return {"involvedObject": about, "message": message, "lastTimestamp": at(5), "reason": "X", **fields}


def group(api, *conditions, kind="PodGroup", **status):
    spec = status.pop("spec", {"queue": "team"})
    return {
        "apiVersion": f"{api}/v1",
        "kind": kind,
        "metadata": {"name": "j", "namespace": "ns", "creationTimestamp": at(1)},
        "spec": spec,
        "status": {"conditions": list(conditions), **status},
    }


def first_line(result):
    return result.message.partition("\n")[0]


def waiting_line(*pods, job=None, **observed):
    result = verdict(job or gang(), *pods, **observed)
    assert result.phase.value == "WAITING_FOR_RESOURCES", result
    return first_line(result)
