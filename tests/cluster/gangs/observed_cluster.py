"""The history of the pods of a cluster, and of the messages of its schedulers about pods and Workloads."""

import contextlib
import math
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from rig.api import Api, pods
from rig.yunikorn import APPLICATION

from gangs.scene import WORKLOADS
from gangs.scheduler_clusters import GPU, NAMESPACE

NODES, EACH = 6, 8
_JOB = "training.kubeflow.org/job-name"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The pods of the cluster that have a node and have not ended, at one time."""

    at: float
    held: Mapping[str, int]  # The GPUs that pods and placeholder pods hold, by job.
    placed: Mapping[str, int]  # The number of replicas by job.
    bound: frozenset[str]  # The names of the pods.


@dataclass(frozen=True, kw_only=True)
class Report:
    """The message of a scheduler about an object of a job, from its arrival to that of the next one."""

    job: str
    message: str
    first: float
    last: float = math.inf


@dataclass(kw_only=True)
class ObservedCluster:
    """Records each change, because a state may last for less than one poll."""

    api: Api
    has_workloads: bool  # True if Kueue admits the jobs.
    seconds: int  # The duration of the watches.
    history: list[Snapshot] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pods: dict[str, Any] = field(default_factory=dict)
    _current: dict[str, Report] = field(default_factory=dict)  # The last report about each object by uid.
    _earlier: list[Report] = field(default_factory=list)

    def start(self):
        for path in (pods(NAMESPACE), *([WORKLOADS] if self.has_workloads else [])):
            threading.Thread(target=self._watch, args=(path,), daemon=True).start()

    def record(self):
        with self._lock:
            self._record()
            return self.history[-1]

    def iter_period(self, first, last):
        """Yield the snapshots of a period, and the last one before it."""
        begin = bisect_left(self.history, first, key=lambda each: each.at)
        end = bisect_right(self.history, last, key=lambda each: each.at)
        yield from self.history[max(0, begin - 1) : end]

    def list_reports(self):
        with self._lock:
            return [*self._earlier, *self._current.values()]

    def _watch(self, path):
        with contextlib.suppress(httpx.HTTPError):  # The cluster has ended.
            for event in self.api.watch(path, timeoutSeconds=str(self.seconds)):
                with self._lock:
                    self._apply(event["object"], is_deleted=event["type"] == "DELETED")
                    self._record()

    def _apply(self, found, *, is_deleted):
        uid, now = found["metadata"]["uid"], time.time()
        if is_deleted:
            self._pods.pop(uid, None)
        elif found["kind"] == "Pod":
            self._pods[uid] = found
        message = "" if is_deleted else _find_message(found)
        before = self._current.get(uid)
        if before is not None and before.message == message:
            return
        if before is not None:
            self._earlier.append(replace(self._current.pop(uid), last=now))
        if message:
            self._current[uid] = Report(job=_find_job(found), message=message, first=now)

    def _record(self):
        bound = [
            each
            for each in self._pods.values()
            if "nodeName" in each["spec"] and each["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        held = Counter[str]()
        for pod in bound:
            held[_find_job(pod)] += _count_gpus(pod)
        placed = Counter(each["metadata"].get("labels", {}).get(_JOB, "") for each in bound)
        names = frozenset(each["metadata"]["name"] for each in bound)
        self.history.append(Snapshot(at=time.time(), held=held, placed=placed, bound=names))


def _find_job(found):
    """Return the name of the job of a pod, a placeholder pod or a Workload."""
    labels = found["metadata"].get("labels", {})
    owners = (each["name"] for each in found["metadata"].get("ownerReferences", ()))
    return str(labels.get(_JOB) or labels.get(APPLICATION) or next(owners, ""))


def _find_message(found):
    """Return the message of the scheduler about a pod that has no node, or about a Workload without quota."""
    conditions = found.get("status", {}).get("conditions", ())
    refused = (each for each in conditions if each["type"] in ("PodScheduled", "QuotaReserved"))
    return str(next((each.get("message", "") for each in refused if each["status"] == "False"), ""))


def _count_gpus(pod):
    requests = (each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get(GPU, 0)) for each in requests)
