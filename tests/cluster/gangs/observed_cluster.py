"""The history of the pods and Workloads of a cluster, and of the messages of its schedulers about them."""

import contextlib
import math
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx
from rig.api import Api, has_condition, pods
from rig.yunikorn import APPLICATION

from gangs.scene import WORKLOADS
from gangs.scheduler_clusters import GPU, NAMESPACE

NODES, EACH = 6, 8
_JOB: Final = "training.kubeflow.org/job-name"
_ENDS: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The GPUs of the cluster at one time."""

    at: float
    free: Mapping[str, int]
    """By node."""
    held: Mapping[str, int]
    """The GPUs that pods and placeholder pods hold, by job."""
    placed: Mapping[str, int]
    """The number of bound replicas that have not ended, by job."""
    bound: frozenset[str]
    """The names of the pods that have a node and have not ended."""
    quota: int
    """The GPUs of the queue that no admitted job holds."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The message of a scheduler about an object of a job, from its arrival to that of the next one."""

    job: str
    message: str
    first: float
    last: float = math.inf


@dataclass(frozen=True, kw_only=True)
class PodShare:
    """The job and the GPUs of a pod."""

    job: str
    gpus: int


@dataclass(kw_only=True)
class ObservedCluster:
    """Records each change, because resources may be free for less than one poll."""

    api: Api
    has_workloads: bool
    """True if Kueue admits the jobs."""
    seconds: int
    """The duration of the watches."""
    history: list[Snapshot] = field(default_factory=list)
    shares: dict[str, PodShare] = field(default_factory=dict)
    """By pod name."""
    settled: dict[str, float] = field(default_factory=dict)
    """The time at which each pod first had a node, or was deleted without one, by pod name."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pods: dict[str, Any] = field(default_factory=dict)
    _workloads: dict[str, Any] = field(default_factory=dict)
    _current: dict[str, Report] = field(default_factory=dict)
    """The last report about each object by uid."""
    _earlier: list[Report] = field(default_factory=list)

    def start(self) -> None:
        """Start the watches."""
        watched = {
            pods(NAMESPACE): self._pods,
            **({WORKLOADS: self._workloads} if self.has_workloads else {}),
        }
        for each in watched.items():
            threading.Thread(target=self._watch, args=each, daemon=True).start()

    def record(self) -> Snapshot:
        """Record the present state and return it."""
        with self._lock:
            self._record()
            return self.history[-1]

    def iter_period(self, first: float, last: float) -> Iterator[Snapshot]:
        """Yield the snapshots of a period, and the last one before it."""
        begin = bisect_left(self.history, first, key=lambda each: each.at)
        end = bisect_right(self.history, last, key=lambda each: each.at)
        yield from self.history[max(0, begin - 1) : end]

    def list_reports(self) -> Sequence[Report]:
        """Return all reports."""
        with self._lock:
            return [*self._earlier, *self._current.values()]

    def _watch(self, path: str, objects: dict[str, Any]) -> None:
        with contextlib.suppress(httpx.HTTPError):  # The cluster has ended.
            for event in self.api.watch(path, timeoutSeconds=str(self.seconds)):
                with self._lock:
                    self._apply(objects, event)
                    self._record()

    def _apply(self, objects: dict[str, Any], event: Mapping[str, Any]) -> None:
        found, now = event["object"], time.time()
        uid, is_deleted = found["metadata"]["uid"], event["type"] == "DELETED"
        objects[uid] = found
        if is_deleted:
            del objects[uid]
        if is_deleted or "nodeName" in found.get("spec", {}):
            self.settled.setdefault(found["metadata"]["name"], now)
        message = "" if is_deleted else _find_message(found)
        before = self._current.get(uid)
        if before is not None and before.message == message:
            return
        if before is not None:
            self._earlier.append(replace(self._current.pop(uid), last=now))
        if message:
            self._current[uid] = Report(job=_find_job(found), message=message, first=now)

    def _record(self) -> None:
        free = dict.fromkeys((f"fake-{number}" for number in range(NODES)), EACH)
        held: Counter[str] = Counter()
        placed: Counter[str] = Counter()
        bound = set[str]()
        for pod in self._pods.values():
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            share = self.shares.setdefault(name, PodShare(job=_find_job(pod), gpus=_count_gpus(pod)))
            if node is None or pod["status"]["phase"] in _ENDS:
                continue
            free[node] -= share.gpus
            held[share.job] += share.gpus
            placed[pod["metadata"].get("labels", {}).get(_JOB, "")] += 1
            bound.add(name)
        quota = NODES * EACH - sum(map(_count_admitted, self._workloads.values()))
        self.history.append(
            Snapshot(at=time.time(), free=free, held=held, placed=placed, bound=frozenset(bound), quota=quota)
        )


def _find_job(found: Mapping[str, Any]) -> str:
    """Return the name of the job of a pod, a placeholder pod or a Workload."""
    labels = found["metadata"].get("labels", {})
    owners = (each["name"] for each in found["metadata"].get("ownerReferences", ()))
    return str(labels.get(_JOB) or labels.get(APPLICATION) or next(owners, ""))


def _find_message(found: Mapping[str, Any]) -> str:
    """Return the message of the scheduler about a pod that has no node, or about a Workload without quota."""
    conditions: Iterable[Mapping[str, Any]] = found.get("status", {}).get("conditions", ())
    refused = (each for each in conditions if each["type"] in ("PodScheduled", "QuotaReserved"))
    return str(next((each.get("message", "") for each in refused if each["status"] == "False"), ""))


def _count_gpus(pod: Mapping[str, Any]) -> int:
    requests = (each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get(GPU, 0)) for each in requests)


def _count_admitted(workload: Mapping[str, Any]) -> int:
    """Return the GPUs that a Workload of Kueue holds."""
    if has_condition(workload, "Finished"):
        return 0
    sets = workload.get("status", {}).get("admission", {}).get("podSetAssignments", ())
    return sum(int(each.get("resourceUsage", {}).get(GPU, 0)) for each in sets)
