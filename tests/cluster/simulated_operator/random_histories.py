"""Random histories of a job. Steps are plausible; whether a pod still exists is only estimated."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from simulated_operator import specs

Step = dict[str, Any]
History = dict[str, Any]
_CODES: Final = (1, 2, 126, 127, 128, 130, 137, 138, 139, 143, 255)
_PENDING: Final[tuple[Step, ...]] = (
    {"phase": "Pending", "waiting": "ImagePullBackOff", "message": "Back-off pulling image"},
    {"phase": "Pending", "waiting": "CreateContainerConfigError", "message": 'secret "a" not found'},
    {"phase": "Pending", "unschedulable": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."},
    {"phase": "Pending", "containers": False},
)
_LOST: Final[tuple[Step, ...]] = (
    {"pod_reason": "Evicted", "message": "The node was low on resource: memory."},
    {"pod_reason": "NodeLost", "message": "Node node which was running the pod is unresponsive"},
    {"pod_reason": "Preempting", "message": "Preempted in order to admit critical pod"},
)
_EDITS: Final[tuple[Step, ...]] = (
    *({"spec": {"runPolicy": {"cleanPodPolicy": policy}}} for policy in ("All", "Running", "None")),
    *({"spec": {"runPolicy": {"backoffLimit": limit}}} for limit in (0, 2)),
    {"spec": {"runPolicy": {"ttlSecondsAfterFinished": specs.SOON}}},
    {"spec": {"nprocPerNode": "4"}},
    {"metadata": {"labels": {"edited": "yes"}}},
)
_WEIGHTS: Final = {
    "pods": 60,
    "touch": 5,
    "delete_pod": 8,
    "reap": 8,
    "dying": 3,
    "delete_service": 3,
    "suspend": 6,
    "resume": 6,
    "scale": 6,
    "patch": 6,
    "deadline": 2,
    "delete_job": 2,
    "quota": 1,
}


def histories(seed: int, count: int, *, has_restart: bool) -> list[History]:
    """Return `count` histories for a seed, with one restart of the operator each if `has_restart`."""
    kind = "r" if has_restart else "w"
    names = [f"{seed}-{kind}{number:04}" for number in range(count)]
    return [_history(Random(name), name, has_restart=has_restart) for name in names]


def _history(chance: Random, name: str, *, has_restart: bool) -> History:
    spec, bound = specs.spec(chance), chance.random() < 0.4
    walk = _Walk(chance, spec, is_bound=bound)
    steps = [{"op": "create"}, *walk.steps(chance.randint(3, 7))]
    if has_restart:
        while_down = list(walk.steps(chance.randint(0, 2)))
        steps.append({"op": "restart_operator", "while_down": while_down})
        steps += walk.steps(chance.randint(1, 3))
    return {
        "id": name,
        "name": specs.name(chance),
        "labels": {"who": "person"},
        "annotations": {"why": "history"},
        "spec": spec,
        "bound": bound,
        "steps": [{"do": step} for step in steps],
    }


class _Walk:
    """A generator of consecutive steps, with an estimate of the state of the pods."""

    def __init__(self, chance: Random, spec: dict[str, Any], *, is_bound: bool) -> None:
        self._chance = chance
        self._roles = {
            role.lower(): each.get("replicas", 1) for role, each in spec["pytorchReplicaSpecs"].items()
        }
        self._is_bound = is_bound
        self._is_whole = {"Master", "Worker"} <= set(spec["pytorchReplicaSpecs"])
        self._is_suspended = spec.get("runPolicy", {}).get("suspend") is True
        self._has_deadline = False
        self._running: set[str] = set()

    def steps(self, count: int) -> Iterator[Step]:
        """Yield `count` random steps, and the steps that they require."""
        for _ in range(count):
            (op,) = self._chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])
            yield from getattr(self, "_" + op)()

    @property
    def _pods_there(self) -> list[str]:
        return [f"{role}-{index}" for role, count in self._roles.items() for index in range(count)]

    def _choose_pod(self) -> str:
        return self._chance.choice(self._pods_there or ["worker-0"])

    def _pods(self) -> Iterator[Step]:
        there = self._pods_there or ["worker-0"]
        if self._is_suspended and self._chance.random() < 0.7:
            yield from self._resume()
            return
        if not self._running and self._chance.random() < 0.7:
            self._running = set(there)
            yield {"op": "pods", "set": [{"pod": pod, "phase": "Running"} for pod in there]}
            return
        # If several pods end in one step, the operator can observe them in different orders.
        some = self._chance.sample(there, min(len(there), self._chance.choice((1, 1, 1, 2))))
        yield {"op": "pods", "set": [{"pod": pod, **self._state(pod)} for pod in some]}

    def _state(self, pod: str) -> Step:
        chance = self._chance
        if pod not in self._running:
            if chance.random() < 0.25:
                return self._pending(pod)
            self._running.add(pod)
            return {"phase": "Running"}
        if chance.random() < 0.28:
            return self._unwell()
        self._running.discard(pod)
        return self._choose_end()

    def _unwell(self) -> Step:
        """Return the state of a running pod with a problem."""
        chance = self._chance
        restarted = {"phase": "Running", "restarts": chance.randint(1, 3), "last_exit": 1}
        backing_off = {"waiting": "CrashLoopBackOff", "message": "back-off 10s", "ready": False}
        ended = {"phase": "Running", "terminated_while_running": True, "exit": chance.choice((0, 1, 137))}
        kinds = (restarted, {**restarted, **backing_off}, ended, {"phase": "Unknown"})
        return chance.choices(kinds, (12, 8, 5, 3))[0]

    def _choose_end(self) -> Step:
        chance = self._chance
        code = chance.choice(_CODES)
        failed = {"phase": "Failed", "exit": code, "reason": "OOMKilled" if code == 137 else "Error"}
        lost = {"phase": "Failed", "containers": False, **chance.choice(_LOST)}
        return chance.choices(({"phase": "Succeeded", "exit": 0}, lost, failed), (3, 2, 5))[0]

    def _pending(self, pod: str) -> Step:
        if self._is_whole and pod.startswith("worker") and self._chance.random() < 0.3:
            return {"phase": "Failed", "init_exit": 1}
        return self._chance.choice(_PENDING)

    def _touch(self) -> Iterator[Step]:
        yield {"op": "touch"}

    def _delete_pod(self) -> Iterator[Step]:
        pods = [self._choose_pod()]
        if self._is_bound and self._chance.random() < 0.3:
            # A lost node: its pods have an unknown phase and are then deleted.
            pods = self._chance.sample(self._pods_there, min(2, len(self._pods_there))) or pods
            yield {"op": "pods", "set": [{"pod": pod, "phase": "Unknown"} for pod in pods]}
        self._running -= set(pods)
        yield from ({"op": "delete_pod", "pod": pod} for pod in pods)

    def _reap(self) -> Iterator[Step]:
        if self._is_bound:
            yield {"op": "reap"}

    def _dying(self) -> Iterator[Step]:
        if self._is_bound:
            yield {"op": "dying", "exit": self._chance.choice((0, 137, 143))}

    def _delete_service(self) -> Iterator[Step]:
        yield {"op": "delete_service", "service": self._choose_pod()}

    def _suspend(self) -> Iterator[Step]:
        self._running.clear()
        self._is_suspended = True
        yield {"op": "suspend"}
        if self._is_bound and self._chance.random() < 0.5:
            yield {"op": "reap"}
        if self._chance.random() < 0.5:
            yield from self._resume()

    def _resume(self) -> Iterator[Step]:
        # If the deadline has almost passed, the result would depend on one second.
        if not self._has_deadline:
            self._is_suspended = False
            yield {"op": "resume"}

    def _scale(self) -> Iterator[Step]:
        if "worker" not in self._roles or (self._is_bound and self._chance.random() < 0.6):
            return
        via = self._chance.choice(("spec", "subresource"))
        replicas = self._chance.choice((1, 1, 2, 2, 3))
        self._roles["worker"] = replicas
        yield {"op": "scale", "replicas": replicas, "via": via}

    def _patch(self) -> Iterator[Step]:
        yield {"op": "patch", "patch": self._chance.choice(_EDITS)}

    def _deadline(self) -> Iterator[Step]:
        self._has_deadline = True
        yield {"op": "wait", "seconds": 3}
        yield {"op": "patch", "patch": {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}}}

    def _delete_job(self) -> Iterator[Step]:
        yield {"op": "delete_job", "propagation": self._chance.choice(("Background", "Background", "Orphan"))}
        self._running.clear()
        if not self._has_deadline and self._chance.random() < 0.6:
            yield {"op": "create"}

    def _quota(self) -> Iterator[Step]:
        yield {"op": "quota", "hard": {"pods": self._chance.choice(("0", "1"))}}
        yield from self.steps(1)
        yield {"op": "quota", "hard": {"pods": "9"}}
