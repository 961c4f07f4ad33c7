"""A storm of random gang jobs on one platform, and the violations that it shows.

The jobs have one to four replicas, fixed or elastic, with sidecars and init containers. They succeed, fail or
are deleted, and the server is killed once. Every poll compares the phases of Flyte with the pods. The numbers
of waiting messages are compared at the end; see `reported_numbers`.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from rig.caller import Shape
from rig.process import wait_until

from gangs.observed_cluster import ObservedCluster
from gangs.reported_numbers import Claim, Job, NumberComparison
from gangs.scene import Scene

JOBS = 40
_ALL_SECONDS = 900  # The time in which all jobs must have ended; an idle machine needs 100 s.
_STALLED = 150
"""Seconds in which a phase or the bound pods must change. A member of a gang waits with a node for 60 s."""
_PARTLY = 15  # Seconds in which the pods of a gang are bound one after the other.
_AFTERWARDS = 45
"""Seconds after the end of a job in which its pods must have ended; 30 of them are for the outputs."""
_OVER = frozenset({"SUCCEEDED", "FAILED", "RETRYABLE_FAILED", "ABORTED"})
_STEPS = ("QUEUED", "WAITING_FOR_RESOURCES", "INITIALIZING", "RUNNING")
"""The reason of YuniKorn for a gang whose placeholders were not placed in time."""


@dataclass(kw_only=True)
class Storm:
    scene: Scene
    random: Random
    counts_all: bool  # True if the queue of the platform counts all replicas of an elastic job.
    jobs: list[Job] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    violations: dict[str, str] = field(default_factory=dict)  # The first violation of each kind by job.
    compared: Counter[str] = field(default_factory=Counter)  # The number of compared numbers by kind.
    _cluster: ObservedCluster = field(init=False)
    _changed: float = field(default_factory=time.time)
    """The time of the last change of a phase or of the bound pods."""
    _state: tuple[frozenset[str], int] = (frozenset(), 0)
    """The bound pods, and the number of observed phases."""

    def __post_init__(self):
        self._cluster = ObservedCluster(
            api=self.scene.plane.admin, has_workloads=self.counts_all, seconds=2 * _ALL_SECONDS
        )

    def run(self):
        self._cluster.start()
        start = self._changed = time.time()
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
            if time.time() > min(start + _ALL_SECONDS, self._changed + _STALLED):
                for job in (job for job in self.jobs if not job.ended):
                    self._report(f"not ended {job.attempt.job}", job, "")
                break
            time.sleep(0.5)
        self._await_empty()
        self._compare_numbers()
        return [f"{kind}: {text}" for kind, text in self.violations.items()]

    # ---- jobs

    def _create(self):
        random = self.random
        replicas, gpus = random.randint(1, 4), random.choice((1, 2, 4, 8))
        elastic = random.random() < 0.25
        # A single pod is no gang: its PodTemplate selects the scheduler.
        role = {"podTemplate": self.scene.platform.alone}
        alone = {"kfpytorch": {"master": role}} if replicas == 1 and self.scene.platform.alone else {}
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

    def _end(self, job):
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

    def _poll(self):
        for job in self.jobs:
            if not job.ended:
                self._observe(job)
            if not job.ended:
                self._end(job)
        now = self._cluster.record()
        state = now.bound, sum(len(job.phases) for job in self.jobs)
        if state != self._state:
            self._state, self._changed = state, now.at
        for job in self.jobs:
            self._check_placed(job, now)

    def _observe(self, job):
        response = self.scene.caller.get(job.attempt)
        before = job.phases[-1] if job.phases else ""
        job.message = response.message
        if response.phase != before:
            job.phases.append(response.phase)
        if response.phase == "RUNNING":
            job.running = job.running or time.time()
        if response.phase in _OVER:
            job.ended = time.time()
            if response.phase != job.end and "ResourceReservationTimeout" not in response.message:
                self._report(
                    "unexpected end", job, f"{response.phase} instead of {job.end}: {response.message}"
                )
        if before in _STEPS and response.phase != before and _is_step_back(before, response.phase):
            self._report("step back", job, f"{before} to {response.phase}: {response.message}")
        if response.phase == "WAITING_FOR_RESOURCES":
            self.claims.append(Claim(job, time.time(), response.message))

    def _check_placed(self, job, now):
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

    def _await_empty(self):
        left = []

        def is_empty():
            left[:] = [*self._cluster.history[-1].held, *self.scene.reserving()]
            return not left

        try:
            wait_until(is_empty, _AFTERWARDS, lambda: "")
        except AssertionError:
            self.violations["left at the end"] = ", ".join(left)

    def _report(self, kind, job, description):
        shape = f"{job.fewest}:{job.replicas} replicas of {job.gpus} GPUs, to be {job.end}"
        self.violations.setdefault(
            kind, f"{job.attempt.job} ({shape}; {', '.join(job.phases)}): {description}\n{job.message}"
        )

    def _compare_numbers(self):
        """Report the numbers of waiting messages that no report of a scheduler explains."""
        numbers = NumberComparison(cluster=self._cluster, counts_all=self.counts_all, compared=self.compared)
        for claim in self.claims:
            if "no node has that much" in claim.message:
                self._report("never", claim.job, claim.message)
            for kind, description in numbers.iter_violations(claim):
                self.compared[f"wrong {kind}"] += 1
                self._report(kind, claim.job, f"{description}\n{claim.message}")


_ELASTIC = {
    "workerReplicas": {"replicas": 4},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 4, "nprocPerNode": 1},
}


def _is_step_back(before, phase):
    """True if a job that waited is queued again, or if one that ran has not ended and does not run."""
    return phase == "QUEUED" or (before == "RUNNING" and phase not in _OVER)
