"""A storm of random gang jobs on one platform, and the violations that it shows.

The jobs have one to four replicas, fixed or elastic, with sidecars and init containers. They succeed, fail or
are deleted, and the server is killed once. Every poll compares the phases of Flyte with the pods. The numbers
of waiting messages are compared with the free amounts of the nodes and queues at their time.
"""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from random import Random
from typing import Any, Final

import httpx
from rig.api import pods
from rig.caller import CallerAttempt, Shape
from rig.process import wait_until
from rig.yunikorn import APPLICATION

from gangs.scene import WORKLOADS, Scene, template
from gangs.scheduler_clusters import GPU, NAMESPACE

NODES, EACH = 6, 8
JOBS: Final = 40
_TICK: Final = 0.5
_ALL_SECONDS: Final = 210
"""The time in which all jobs must have ended."""
_PARTLY: Final = 15
"""Seconds in which the pods of a gang are bound one after the other."""
_AFTERWARDS: Final = 45
"""Seconds after the end of a job in which its pods must have ended; 30 of them are for the outputs."""
_REPORT_AGE: Final = 14
"""Seconds by which a number without a time may be older than its message: 10, and the polling intervals."""
_SKEW: Final = 4
"""Seconds by which an object may be observed later than a scheduler counts it."""
_JOB: Final = "training.kubeflow.org/job-name"
_OVER: Final = frozenset({"SUCCEEDED", "FAILED", "RETRYABLE_FAILED", "ABORTED"})
_STEPS: Final = ("QUEUED", "WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING")
_AMOUNTS: Final = re.compile(
    r"waiting for (?P<lacks>\d+) nvidia\.com/gpu in (?P<place>the cluster|queue \S+)"
    r": (?P<asked>\d+) requested"
    r"(?:, (?P<held>\d+) held)?"
    r"(?:, (?P<free>\d+) free(?: at (?P<at>\d\d:\d\d:\d\d) UTC)?)?"
)
_NODE_COUNTS: Final = re.compile(
    r"no node of (?P<nodes>\d+) fits: (?P<lack>\d+) lack nvidia\.com/gpu \(requested: (?P<asked>\d+) nvidia"
)
_GIVEN_UP: Final = "ResourceReservationTimeout"
"""The reason of YuniKorn for a gang whose placeholders were not placed in time."""
_NEVER: Final = "no node has that much"


@dataclass(kw_only=True)
class Job:
    """A job of the storm, and its observed history."""

    attempt: CallerAttempt
    replicas: int
    fewest: int
    """The number of replicas that must be placed together."""
    gpus: int
    """GPUs per replica."""
    end: str
    """``SUCCEEDED``, ``FAILED`` or ``deleted``."""
    seconds: float
    """The time until its end, since it runs or, for a deletion, since its creation."""
    created: float
    phases: list[str] = field(default_factory=list)
    message: str = ""
    running: float = 0
    is_ordered: bool = False
    """True if its end has been ordered."""
    ended: float = 0
    partly: float = 0
    """The time since which only a part of the gang is placed."""
    is_complete: bool = False
    """True if the gang was placed once."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A waiting message of a job."""

    job: Job
    at: float
    message: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The GPUs of the cluster at one time."""

    at: float
    free: tuple[int, ...]
    """By node."""
    held: Mapping[str, int]
    """The GPUs that pods and placeholder pods hold, by job."""
    placed: Mapping[str, int]
    """The number of bound replicas that have not ended, by job."""
    quota: int
    """The GPUs of the queue that no admitted job holds."""


@dataclass(kw_only=True)
class Storm:
    """A run of random jobs; `run` returns the violations."""

    scene: Scene
    random: Random
    counts_all: bool
    """True if the queue of the platform counts all replicas of an elastic job."""
    jobs: list[Job] = field(default_factory=list)
    history: list[Snapshot] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    violations: dict[str, str] = field(default_factory=dict)
    """The first violation of each kind by job."""
    compared: Counter[str] = field(default_factory=Counter)
    """The number of compared numbers by kind."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pods: dict[str, Any] = field(default_factory=dict)
    _workloads: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Sequence[str]:
        """Run the storm to the end of all jobs."""
        watched = {pods(NAMESPACE): self._pods, **({WORKLOADS: self._workloads} if self.counts_all else {})}
        for each in watched.items():
            threading.Thread(target=self._watch, args=each, daemon=True).start()
        start = time.time()
        due = sorted(start + self.random.uniform(0, 36) for _ in range(JOBS))
        killed = start + self.random.uniform(12, 30)
        while due or any(not job.ended for job in self.jobs):
            while due and due[0] <= time.time():
                due.pop(0)
                self._create()
            if killed and time.time() > killed:
                killed = 0
                self.scene.served.process.kill()
                self.scene.served.start()
            self._poll()
            if time.time() - start > _ALL_SECONDS:
                self._report_unfinished()
                break
            time.sleep(_TICK)
        self._await_empty()
        for claim in self.claims:
            self._compare(claim)
        return [f"{kind}: {text}" for kind, text in self.violations.items()]

    # ---- jobs

    def _create(self) -> None:
        random = self.random
        replicas, gpus = random.randint(1, 4), random.choice((1, 2, 4, 8))
        elastic = random.random() < 0.25
        # A single pod is no gang: its PodTemplate selects the scheduler.
        alone = template(self.scene.platform.alone) if replicas == 1 and self.scene.platform.alone else {}
        beside = random.choices(("", "sidecar", "init"), (6, 2, 2))[0]
        shape = Shape(
            workers=replicas - 1,
            gpus=gpus,
            sidecar_cpu="3" if beside == "sidecar" else "",
            init_cpu="2" if beside == "init" else "",
            custom=_ELASTIC if elastic else alone,
        )
        end = random.choices(("SUCCEEDED", "FAILED", "deleted"), (13, 3, 4))[0]
        seconds = random.uniform(0, 25) if end == "deleted" else random.uniform(2, 10)
        self.jobs.append(
            Job(
                attempt=self.scene.create(shape),
                replicas=4 if elastic else replicas,
                fewest=2 if elastic else replicas,
                gpus=gpus,
                end=end,
                seconds=seconds,
                created=time.time(),
            )
        )

    def _end(self, job: Job) -> None:
        """Order the end of a job if its time has come."""
        now = time.time()
        if job.end == "deleted":
            if now - job.created > job.seconds:
                self.scene.caller.delete(job.attempt)
                job.ended = now
            return
        if job.is_ordered or not job.running or now - job.running < job.seconds:
            return
        job.is_ordered = True
        if job.end == "SUCCEEDED":
            self.scene.finish(job.attempt)
        else:
            running = [each for each in self.scene.pods(job.attempt) if each["status"]["phase"] == "Running"]
            self.scene.fail(self.random.choice(running))

    # ---- polls

    def _poll(self) -> None:
        for job in self.jobs:
            if not job.ended:
                self._observe(job)
            if not job.ended:
                self._end(job)
        with self._lock:
            self._record()
            now = self.history[-1]
        for job in self.jobs:
            self._check_placed(job, now)

    def _observe(self, job: Job) -> None:
        response = self.scene.caller.get(job.attempt)
        before = job.phases[-1] if job.phases else ""
        job.message = response.message
        if response.phase != before:
            job.phases.append(response.phase)
        if response.phase == "RUNNING":
            job.running = job.running or time.time()
        if response.phase in _OVER:
            job.ended = time.time()
            if response.phase != job.end and _GIVEN_UP not in response.message:
                self._report(
                    "unexpected end", job, f"{response.phase} instead of {job.end}: {response.message}"
                )
        if before in _STEPS and response.phase != before and _is_step_back(before, response.phase):
            self._report("step back", job, f"{before} to {response.phase}: {response.message}")
        if response.phase == "WAITING_FOR_RESOURCES":
            self.claims.append(Claim(job=job, at=time.time(), message=response.message))

    def _watch(self, path: str, objects: dict[str, Any]) -> None:
        """Record every change of the objects, because resources may be free for less than one poll."""
        seconds = str(2 * _ALL_SECONDS)
        with contextlib.suppress(httpx.HTTPError):  # The cluster has ended.
            for event in self.scene.plane.admin.watch(path, timeoutSeconds=seconds):
                uid = event["object"]["metadata"]["uid"]
                with self._lock:
                    objects[uid] = event["object"]
                    if event["type"] == "DELETED":
                        del objects[uid]
                    self._record()

    def _record(self) -> None:
        free = dict.fromkeys((f"fake-{number}" for number in range(NODES)), EACH)
        held: Counter[str] = Counter()
        placed: Counter[str] = Counter()
        for pod in self._pods.values():
            node = pod["spec"].get("nodeName")
            if node is None or pod["status"]["phase"] in ("Succeeded", "Failed"):
                continue
            labels, gpus = pod["metadata"].get("labels", {}), _count_gpus(pod)
            free[node] -= gpus
            held[labels.get(_JOB) or labels.get(APPLICATION, "")] += gpus
            placed[labels.get(_JOB, "")] += 1
        quota = NODES * EACH - sum(map(_count_admitted, self._workloads.values()))
        self.history.append(
            Snapshot(at=time.time(), free=tuple(free.values()), held=held, placed=placed, quota=quota)
        )

    def _check_placed(self, job: Job, now: Snapshot) -> None:
        placed = now.placed.get(job.attempt.job, 0)
        if job.ended:
            if placed and now.at - job.ended > _AFTERWARDS:
                self._report("placed after the end", job, f"{placed} pods")
            return
        job.is_complete = job.is_complete or placed >= job.fewest
        if job.is_complete or not placed:
            job.partly = 0
            return
        job.partly = job.partly or now.at
        if now.at - job.partly > _PARTLY:
            self._report("placed in part", job, f"{placed} of {job.fewest}")

    def _report_unfinished(self) -> None:
        for job in self.jobs:
            if not job.ended:
                self._report(f"not ended {job.attempt.job}", job, f"free {self.history[-1].free}")

    def _await_empty(self) -> None:
        left: list[str] = []

        def is_empty() -> bool:
            with self._lock:
                left[:] = [*self.history[-1].held, *self.scene.reserving()]
            return not left

        try:
            wait_until(is_empty, _AFTERWARDS, lambda: "")
        except AssertionError:
            self.violations["left at the end"] = ", ".join(left)

    def _report(self, kind: str, job: Job, description: str) -> None:
        shape = f"{job.fewest}:{job.replicas} replicas of {job.gpus} GPUs, to be {job.end}"
        self.violations.setdefault(
            kind, f"{job.attempt.job} ({shape}; {', '.join(job.phases)}): {description}\n{job.message}"
        )

    # ---- numbers

    def _compare(self, claim: Claim) -> None:
        """Compare the numbers of one message with the observed state."""
        job, message = claim.job, claim.message
        if _NEVER in message:
            self._report("never", job, message)
        for found in _AMOUNTS.finditer(message):
            self._compare_amounts(claim, found)
        for found in _NODE_COUNTS.finditer(message):
            lacking = [
                sum(free < job.gpus for free in each.free)
                for each in self._between(claim.at - _REPORT_AGE, claim.at + _SKEW)
            ]
            self._check(claim, "nodes", int(found["nodes"]), [NODES])
            self._check(claim, "request of a replica", int(found["asked"]), [job.gpus])
            self._check(claim, "lacking nodes", int(found["lack"]), lacking)

    def _compare_amounts(self, claim: Claim, found: "re.Match[str]") -> None:
        job, is_queue = claim.job, found["place"] != "the cluster"
        counted = job.replicas if is_queue and self.counts_all else job.fewest
        lacks, asked = int(found["lacks"]), int(found["asked"])
        self._check(claim, "requested", asked, [counted * job.gpus])
        first, last = claim.at - _REPORT_AGE, claim.at + _SKEW
        if found["at"]:
            at = _parse_time(found["at"], claim.at)
            first, last = at - _SKEW, at + _SKEW
        snapshots = [*self._between(first, last)]
        if found["held"]:
            self._check(
                claim, "held", int(found["held"]), [each.held.get(job.attempt.job, 0) for each in snapshots]
            )
        if found["free"]:
            free = int(found["free"])
            self._check(claim, "sum", lacks + free + int(found["held"] or 0), [asked])
            amounts = [each.quota if is_queue and self.counts_all else sum(each.free) for each in snapshots]
            self._check(claim, "free", free, amounts)

    def _between(self, first: float, last: float) -> Iterator[Snapshot]:
        """Yield the snapshots of a period, and the last one before it."""
        before = [each for each in self.history if each.at < first]
        yield from before[-1:]
        yield from (each for each in self.history if first <= each.at <= last)

    def _check(self, claim: Claim, what: str, reported: int, observed: Sequence[int]) -> None:
        self.compared[what] += 1
        if not min(observed) <= reported <= max(observed):
            self.compared[f"wrong {what}"] += 1
            where = f"{reported} is not in {min(observed)} to {max(observed)}"
            self._report(f"number of {what}", claim.job, f"{where}\n{claim.message}")


_ELASTIC: Final[Mapping[str, Any]] = {
    "workerReplicas": {"replicas": 4},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 4, "nprocPerNode": 1},
}


def _is_step_back(before: str, phase: str) -> bool:
    """True if a job that waited is queued again, or if one that ran has not ended and does not run."""
    return phase == "QUEUED" or (before == "RUNNING" and phase not in _OVER)


def _count_gpus(pod: Mapping[str, Any]) -> int:
    requests = (each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get(GPU, 0)) for each in requests)


def _count_admitted(workload: Mapping[str, Any]) -> int:
    """Return the GPUs that a Workload of Kueue holds."""
    status = workload.get("status", {})
    if any(each["type"] == "Finished" and each["status"] == "True" for each in status.get("conditions", ())):
        return 0
    sets = status.get("admission", {}).get("podSetAssignments", ())
    return sum(int(each.get("resourceUsage", {}).get(GPU, 0)) for each in sets)


def _parse_time(clock: str, near: float) -> float:
    """Return the time of day of a message as seconds since the epoch."""
    day = datetime.fromtimestamp(near, timezone.utc)
    hours, minutes, seconds = map(int, clock.split(":"))
    return day.replace(hour=hours, minute=minutes, second=seconds, microsecond=0).timestamp()
