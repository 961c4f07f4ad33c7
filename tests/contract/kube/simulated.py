"""The parts that all simulated schedulers need: an operator that creates pods, bindings and events."""

from datetime import datetime, timezone
from typing import Any

from kube_objects import Objects

from backend_plugin.core.quantity import Quantity, add_quantities, parse

LABEL = "training.kubeflow.org/"
JOBS = ("kubeflow.org", "pytorchjobs")


def list_objects(objects: Objects, plural: str, group: str = "") -> list[tuple[Any, Any]]:
    found = [(key, each) for key, each in objects.now.items() if key[:2] == (group, plural)]
    return sorted(found, key=lambda pair: pair[1]["metadata"]["creationTimestamp"])


def format_now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def operate(objects: Objects) -> None:
    """Simulate the training-operator: create the pods of unfinished jobs and set their conditions."""
    for key, job in list_objects(objects, *JOBS[::-1]):
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        made = []
        for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
            for index in range(replica["replicas"]):
                template = replica["template"]
                labels = {**template["metadata"]["labels"], LABEL + "job-name": name}
                labels |= {LABEL + "replica-type": role.lower(), LABEL + "replica-index": str(index)}
                pod = f"{name}-{role.lower()}-{index}"
                owner = {
                    "kind": "PyTorchJob",
                    "name": name,
                    "uid": job["metadata"]["uid"],
                    "controller": True,
                }
                meta = {**template["metadata"], "name": pod, "namespace": namespace, "labels": labels}
                made.append({"metadata": {**meta, "ownerReferences": [owner]}, "spec": template["spec"]})
        for pod in made:
            where = ("", "pods", namespace, pod["metadata"]["name"])
            if where not in objects.now:
                objects.apply(where, {**pod, "status": {"phase": "Pending"}})
        running = any(each["status"]["phase"] == "Running" for _, each in list_objects(objects, "pods"))
        before = [each["type"] for each in job.get("status", {}).get("conditions", [])]
        # The condition stays, even if the pods are deleted.
        kinds = ["Created", *(["Running"] if running or "Running" in before else [])]
        said = [{"type": each, "status": "True", "lastTransitionTime": format_now()} for each in kinds]
        if before != kinds:
            objects.apply(key, {**job, "status": {"startTime": format_now(), "conditions": said}})


def bind(objects: Objects, pods: list[tuple[Any, Any]]) -> None:
    """Bind the pods to a node and run them."""
    for key, pod in pods:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_now()}
        running = {"name": "pytorch", "state": {"running": {"startedAt": format_now()}}}
        status = {"phase": "Running", "conditions": [scheduled], "containerStatuses": [running]}
        objects.apply(key, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}, "status": status})


def record_event(objects: Objects, about: Any, kind: str, reason: str, message: str) -> None:
    """Create an event unless it exists."""
    meta = about["metadata"]
    key = ("", "events", meta["namespace"], f"{meta['name']}.{reason}.{abs(hash(message))}")
    if key not in objects.now:
        said = {"kind": kind, "name": meta["name"], "namespace": meta["namespace"]}
        objects.apply(
            key,
            {
                "metadata": {"name": key[3], "namespace": key[2]},
                "involvedObject": said,
                "reason": reason,
                "message": message,
                "type": "Normal",
                "lastTimestamp": format_now(),
            },
        )


def sum_requests(pods: list[tuple[Any, Any]], resource: str) -> Quantity:
    """Return the total requests of all pods for one resource."""
    containers = [each for _, pod in pods for each in pod["spec"]["containers"]]
    requests = [each.get("resources", {}).get("requests", {}) for each in containers]
    return add_quantities([parse(each[resource]) for each in requests if resource in each] or [parse("0")])
