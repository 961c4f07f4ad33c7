"""Simulates the parts of KAI that a backend observes: pod groups, queues and status messages."""

import time
from dataclasses import dataclass, field
from typing import Any

from kube_objects import Objects
from simulated import JOBS, bind, list_objects, record_event, sum_requests

from backend_plugin.core.quantity import Quantity, parse, subtract_quantity

API = "scheduling.run.ai"
QUEUE = "kai.scheduler/queue"


@dataclass
class Kai:
    """A simulated KAI. `step` is one cycle of its grouper and its scheduler."""

    queues: dict[str, str]
    """The CPUs of each queue, ``-1`` for no limit."""
    stale: float = 60.0
    """Seconds after which KAI evicts a gang that has fewer pods than its minimum."""
    _short: dict[str, float] = field(default_factory=dict)

    def step(self, objects: Objects) -> None:
        for _, job in list_objects(objects, *JOBS[::-1]):
            roles = job["spec"]["pytorchReplicaSpecs"].values()
            if any(not role.get("replicas") for role in roles):
                record_event(
                    objects, job, "PyTorchJob", "PodGrouperWarning", "every replica spec needs its replicas"
                )
                continue
            self._schedule(objects, self._group(objects, job), job)

    def _group(self, objects: Objects, job: Any) -> Any:
        meta, spec = job["metadata"], job["spec"]
        key = (API, "podgroups", meta["namespace"], f"pg-{meta['name']}-{meta['uid']}")
        if key in objects.now:
            return key
        policy = spec.get("runPolicy", {}).get("schedulingPolicy", {})
        every = sum(role["replicas"] for role in spec["pytorchReplicaSpecs"].values())
        least = policy.get("minAvailable") or spec.get("elasticPolicy", {}).get("minReplicas") or every
        owner = {"kind": "PyTorchJob", "name": meta["name"], "uid": meta["uid"]}
        made = {
            "apiVersion": f"{API}/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": key[3], "namespace": key[2], "ownerReferences": [owner]},
            "spec": {"minMember": least, "queue": meta["labels"].get(QUEUE, "default-queue")},
        }
        objects.apply(key, made)
        return key

    def _schedule(self, objects: Objects, key: Any, job: Any) -> None:
        group, name = objects.now[key], job["metadata"]["name"]
        pods = [each for each in list_objects(objects, "pods") if each[0][3].startswith(f"{name}-")]
        running = [each for each in pods if each[1]["status"]["phase"] == "Running"]
        least, queue = group["spec"]["minMember"], group["spec"]["queue"]
        if running:
            self._watch_over(objects, group, running, least)
        elif len(pods) < least:
            said = f"Waiting for {least} pods for SubGroup worker, currently {len(pods)} exist, 0 are gated."
            record_event(objects, group, "PodGroup", "NotReady", f"Job is not ready for scheduling. {said}")
        elif queue not in self.queues:
            self._hold(objects, key, "QueueDoesNotExist", f"Queue {queue} does not exist", {"name": queue})
        elif (limit := parse(self.queues[queue])).nano >= 0 and sum_requests(pods, "cpu") > subtract_quantity(
            limit, used := self._used(objects, queue)
        ):
            amounts = {
                "podGroupRequestedResources": sum_requests(pods, "cpu"),
                "queueAllocatedResources": used,
                "queueResourceLimits": limit,
            }
            details = {"name": queue, **{each: {"cpu": amount.text} for each, amount in amounts.items()}}
            self._hold(
                objects, key, "OverLimit", f"{queue} quota has reached the allowable limit of CPUs", details
            )
        else:
            bind(objects, pods)
            objects.apply(key, {**group, "status": {}})

    def _hold(self, objects: Objects, key: Any, reason: str, message: str, details: Any) -> None:
        why = {"reason": reason, "message": message, "details": {"queueDetails": details}}
        status = {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "reasons": [why]}]}
        if objects.now[key].get("status") != status:
            objects.apply(key, {**objects.now[key], "status": status})

    def _watch_over(self, objects: Objects, group: Any, running: list[Any], least: int) -> None:
        name = group["metadata"]["name"]
        since = self._short.setdefault(name, time.monotonic())
        if len(running) >= least:
            del self._short[name]
        elif time.monotonic() - since >= self.stale:
            record_event(
                objects, group, "PodGroup", "StaleJob", "Job is stale: it has fewer pods than it needs"
            )
            for key, _ in running:
                objects.remove(key)

    def _used(self, objects: Objects, queue: str) -> Quantity:
        jobs = [
            job
            for _, job in list_objects(objects, *JOBS[::-1])
            if job["metadata"]["labels"].get(QUEUE) == queue
        ]
        names = tuple(f"{job['metadata']['name']}-" for job in jobs)
        pods = [each for each in list_objects(objects, "pods") if each[0][3].startswith(names)]
        return sum_requests([each for each in pods if each[1]["status"]["phase"] == "Running"], "cpu")
