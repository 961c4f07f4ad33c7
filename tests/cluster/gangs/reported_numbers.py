"""Comparison of the numbers in waiting messages with the pods of a cluster and the reports of its schedulers.

A scheduler reports a number once. The pod or the Workload keeps it, possibly for minutes, until the scheduler
tries again. The server must show the number of a report that is still present.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from rig.caller import CallerAttempt

from gangs.observed_cluster import NODES, ObservedCluster
from gangs.scheduler_clusters import GPU

_SKEW = 4  # Seconds by which an object may be observed later than a scheduler or the server counts it.
_AMOUNTS = re.compile(
    r"(?P<replica>[\w-]+: )?waiting for (?P<lacks>\d+) nvidia\.com/gpu in (?P<place>the cluster|queue \S+)"
    r": (?P<asked>\d+) requested"
    r"(?:, (?P<held>\d+) held)?"
    r"(?:, (?P<free>\d+) free)?"
)
_NODE_COUNTS = re.compile(
    r"no node of (?P<nodes>\d+) fits: (?P<lack>\d+) lack nvidia\.com/gpu \(requested: (?P<asked>\d+) nvidia"
)
_REPORTED_SHORTAGE = re.compile(
    r"nvidia\.com/gpu(?::\{\{(?P<gap>\d+) (?P<scale>\d+)\}| in flavor \S+, (?P<more>\d+) more needed)"
)
_REPORTED_NODES = re.compile(rf"(\d+) Insufficient {GPU}")


@dataclass(kw_only=True)
class Job:
    attempt: CallerAttempt
    replicas: int
    fewest: int  # The number of replicas that must be placed together.
    gpus: int  # GPUs per replica.
    end: str  # ``SUCCEEDED``, ``FAILED`` or ``deleted``.
    seconds: float  # The time until its end, since it runs or, for a deletion, since its creation.
    created: float
    phases: list[str] = field(default_factory=list)
    message: str = ""
    running: float = 0
    is_ordered: bool = False  # True if its end has been ordered.
    ended: float = 0
    partly: float = 0  # The time since which only a part of the gang is placed.
    is_complete: bool = False  # True if the gang was placed once.


@dataclass(frozen=True)
class Claim:
    job: Job
    at: float
    message: str


@dataclass(kw_only=True)
class NumberComparison:
    cluster: ObservedCluster
    counts_all: bool  # True if the queue of the platform counts all replicas of an elastic job.
    compared: Counter[str] = field(default_factory=Counter)  # The number of compared numbers by kind.

    def iter_violations(self, claim):
        """Yield the kind of each wrong number of a claim, and a description."""
        for found in _AMOUNTS.finditer(claim.message):
            yield from self._compare_amounts(claim, found)
        for found in _NODE_COUNTS.finditer(claim.message):
            yield from self._check("nodes", int(found["nodes"]), {NODES})
            yield from self._check("request of a replica", int(found["asked"]), {claim.job.gpus})
            counts = {int(one) for text in self._list_reports(claim) for one in _REPORTED_NODES.findall(text)}
            yield from self._check("lacking nodes", int(found["lack"]), counts)

    def _compare_amounts(self, claim, found):
        is_quota = found["place"] != "the cluster" and self.counts_all
        # YuniKorn reports the request of one pod, also for the replicas that a gang may lack.
        replicas = 1 if found["replica"] else claim.job.replicas if is_quota else claim.job.fewest
        requested = replicas * claim.job.gpus
        lacks, held = int(found["lacks"]), int(found["held"] or 0)
        yield from self._check("requested", int(found["asked"]), {requested})
        if found["held"]:
            present = self.cluster.iter_period(claim.at - _SKEW, claim.at + _SKEW)
            yield from self._check("held", held, {one.held.get(claim.job.attempt.job, 0) for one in present})
        if found["free"]:
            yield from self._check("sum", lacks + int(found["free"]) + held, {requested})
            shortages = {each for text in self._list_reports(claim) for each in _read_shortages(text)}
            yield from self._check("lacking", lacks, shortages)

    def _check(self, what, reported, observed):
        self.compared[what] += 1
        if reported not in observed:
            yield f"number of {what}", f"{reported} is not in {sorted(observed)}"

    def _list_reports(self, claim):
        """Return the messages about the job that were present at the time of the claim."""
        return [
            each.message
            for each in self.cluster.list_reports()
            if each.job == claim.job.attempt.job and each.first - _SKEW <= claim.at <= each.last + _SKEW
        ]


def _read_shortages(message):
    """Return the numbers of missing GPUs in the message of coscheduling or Kueue."""
    return {
        int(found["more"] or int(found["gap"]) * 10 ** int(found["scale"]))
        for found in _REPORTED_SHORTAGE.finditer(message)
    }
