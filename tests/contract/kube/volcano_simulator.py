"""Simulates the parts of Volcano that a backend observes: queue admission, scheduling and status messages."""

from dataclasses import dataclass, field
from typing import Any

from kube_objects import Objects, Refusal
from simulated import bind, format_now, list_objects, record_event

from backend_plugin.core.quantity import Quantity, add_quantities, parse, subtract_quantity

API = "scheduling.volcano.sh"
GROUP = "scheduling.k8s.io/group-name"
LIVING = ("Inqueue", "Running")


@dataclass
class Volcano:
    """A simulated Volcano. `admit` is its webhook, `step` is one cycle of its scheduler."""

    free: dict[str, str]
    """The capacity of the nodes."""
    queues: dict[str, dict[str, str]] = field(default_factory=dict)
    """The limits of each queue. Empty for no limit."""
    closed: set[str] = field(default_factory=set)

    def admit(self, plural: str, manifest: Any) -> None:
        if plural == "podgroups":
            queue = manifest["spec"].get("queue", "default")
            if queue not in self.queues:
                raise Refusal(
                    403, "Forbidden", f"admission webhook denied the request: unable to find queue: {queue}"
                )
            if queue in self.closed:
                said = "can only submit PodGroup to queue with state `Open`"
                raise Refusal(403, "Forbidden", f"admission webhook denied the request: {said}")

    def step(self, objects: Objects) -> None:
        for key, group in list_objects(objects, "podgroups", API):
            phase = group.get("status", {}).get("phase", "")
            if phase in ("", "Pending"):
                self._enqueue(objects, key, group)
            elif phase == "Inqueue":
                self._allocate(objects, key, group)

    def _enqueue(self, objects: Objects, key: Any, group: Any) -> None:
        living = [each for _, each in list_objects(objects, "podgroups", API) if _phase(each) in LIVING]
        queue = group["spec"].get("queue", "default")
        beside = [each for each in living if each["spec"].get("queue", "default") == queue]
        over = self._list_exceeded(group, self.queues[queue], beside)
        full = self._list_exceeded(group, self.free, living)
        phase = "Pending" if over or full else "Inqueue"
        if over:
            said = ", ".join(f"insufficient {each}" for each in over)
            record_event(
                objects, group, "PodGroup", "Unschedulable", f"queue resource quota insufficient: {said}"
            )
        elif full:
            said = ", ".join(f"overused {each}" for each in full)
            record_event(
                objects, group, "PodGroup", "Unschedulable", f"resource in cluster is overused: {said}"
            )
        if _phase(group) != phase:
            objects.apply(key, {**group, "status": {"phase": phase}})

    def _list_exceeded(self, group: Any, limits: dict[str, str], living: list[Any]) -> list[str]:
        """Return the resources that exceed the limits, given the admitted groups."""
        wanted = group["spec"]["minResources"]
        return sorted(
            name
            for name, most in limits.items()
            if name in wanted and parse(wanted[name]) > subtract_quantity(parse(most), _used(living, name))
        )

    def _allocate(self, objects: Objects, key: Any, group: Any) -> None:
        name, namespace = group["metadata"]["name"], group["metadata"]["namespace"]
        pods = [
            each
            for each in list_objects(objects, "pods")
            if each[0][2] == namespace and each[1]["metadata"].get("annotations", {}).get(GROUP) == name
        ]
        least = group["spec"]["minMember"]
        if len(pods) >= least:
            bind(objects, pods)
            objects.apply(key, {**group, "status": {"phase": "Running"}})
        else:
            short = f"pod group is not ready, {least} minAvailable"
            said = f"{len(pods)}/{len(pods)} tasks in gang unschedulable: {short}"
            told = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughTasks", "message": said}
            conditions = [{**told, "lastTransitionTime": format_now()}]
            objects.apply(key, {**group, "status": {"phase": "Inqueue", "conditions": conditions}})


def _phase(group: Any) -> str:
    return str(group.get("status", {}).get("phase", ""))


def _used(groups: list[Any], resource: str) -> Quantity:
    asked = [each["spec"]["minResources"] for each in groups]
    return add_quantities([parse(each[resource]) for each in asked if resource in each] or [parse("0")])
