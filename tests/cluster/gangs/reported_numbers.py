"""Comparison of the numbers in waiting messages with the observed state of a cluster.

A scheduler reports a number once. The pod or the Workload keeps it, possibly for minutes, until the scheduler
tries again. A number is therefore compared with the state at the time of its report, and it must be in a
report that is still present when the server shows it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Final

from gangs.observed_cluster import NODES, ObservedCluster, Report, Snapshot
from gangs.scheduler_clusters import GPU
from gangs.scheduler_log import Reservation

_SKEW: Final = 4
"""Seconds by which an object may be observed later than a scheduler or the server counts it."""
_AMOUNTS: Final = re.compile(
    r"(?P<replica>[\w-]+: )?waiting for (?P<lacks>\d+) nvidia\.com/gpu in (?P<place>the cluster|queue \S+)"
    r": (?P<asked>\d+) requested"
    r"(?:, (?P<held>\d+) held)?"
    r"(?:, (?P<free>\d+) free(?: at (?P<at>\d\d:\d\d:\d\d) UTC)?)?"
)
_NODE_COUNTS: Final = re.compile(
    r"no node of (?P<nodes>\d+) fits: (?P<lack>\d+) lack nvidia\.com/gpu \(requested: (?P<asked>\d+) nvidia"
)
_REPORTED_SHORTAGE: Final = re.compile(
    r"nvidia\.com/gpu(?::\{\{(?P<gap>\d+) (?P<scale>\d+)\}| in flavor \S+, (?P<more>\d+) more needed)"
)
Period = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A waiting message of a job."""

    job: str
    replicas: int
    fewest: int
    """The number of replicas that must be placed together."""
    gpus: int
    """GPUs per replica."""
    at: float
    message: str


@dataclass(kw_only=True)
class NumberComparison:
    """Compares claims and counts the compared numbers."""

    cluster: ObservedCluster
    reservations: Sequence[Reservation]
    counts_all: bool
    """True if the queue of the platform counts all replicas of an elastic job."""
    compared: Counter[str] = field(default_factory=Counter)
    """The number of compared numbers by kind."""

    def iter_violations(self, claim: Claim) -> Iterator[tuple[str, str]]:
        """Yield the kind of each wrong number of a claim, and a description."""
        for found in _AMOUNTS.finditer(claim.message):
            yield from self._compare_amounts(claim, found)
        for found in _NODE_COUNTS.finditer(claim.message):
            yield from self._check("nodes", int(found["nodes"]), [NODES])
            yield from self._check("request of a replica", int(found["asked"]), [claim.gpus])
            text = f"{found['lack']} Insufficient {GPU}"
            reports = [each for each in self._list_reports(claim) if text in each.message]
            yield from self._check(
                "lacking nodes", int(found["lack"]), self._list_lacking(claim, _list_periods(reports))
            )

    def _compare_amounts(self, claim: Claim, found: "re.Match[str]") -> Iterator[tuple[str, str]]:
        is_quota = found["place"] != "the cluster" and self.counts_all
        # YuniKorn reports the request of one pod, also for the replicas that a gang may lack.
        replicas = 1 if found["replica"] else claim.replicas if is_quota else claim.fewest
        requested = replicas * claim.gpus
        lacks, held = int(found["lacks"]), int(found["held"] or 0)
        yield from self._check("requested", int(found["asked"]), [requested])
        if found["held"]:
            present = self.cluster.iter_period(claim.at - _SKEW, claim.at + _SKEW)
            yield from self._check("held", held, [each.held.get(claim.job, 0) for each in present])
        if not found["free"]:
            return
        free = int(found["free"])
        yield from self._check("sum", lacks + free + held, [requested])
        if found["at"]:
            at = _parse_time(found["at"], claim.at)
            periods: Sequence[Period] = [(at - _SKEW, at + _SKEW)]
        else:
            periods = _list_periods(
                [each for each in self._list_reports(claim) if lacks in _read_shortages(each.message)]
            )
        if is_quota:
            amounts = [each.quota for each in self._iter_snapshots(periods)]
        elif found["place"] != "the cluster":
            amounts = [sum(each.free.values()) for each in self._iter_snapshots(periods)]
        else:
            amounts = [*self._list_free(claim, periods)]
        # Coscheduling also counts as free what the gang holds; the server subtracts what it holds now.
        yield from self._check("free", free + held, amounts)

    def _check(self, what: str, reported: int, observed: Sequence[int]) -> Iterator[tuple[str, str]]:
        self.compared[what] += 1
        if not observed:
            yield f"number of {what}", f"{reported} is in no report of a scheduler"
        elif not min(observed) <= reported <= max(observed):
            yield f"number of {what}", f"{reported} is not in {min(observed)} to {max(observed)}"

    # ---- reports

    @cached_property
    def _reports(self) -> dict[str, list[Report]]:
        """All reports by job; read after the last change."""
        by_job = defaultdict[str, list[Report]](list)
        for each in self.cluster.list_reports():
            by_job[each.job].append(each)
        return by_job

    def _list_reports(self, claim: Claim) -> Sequence[Report]:
        """Return the reports about the job that were present at the time of the claim."""
        reports = self._reports.get(claim.job, ())
        return [each for each in reports if each.first - _SKEW <= claim.at <= each.last + _SKEW]

    # ---- the state in the periods

    def _iter_snapshots(self, periods: Sequence[Period]) -> Iterator[Snapshot]:
        for period in periods:
            yield from self.cluster.iter_period(*period)

    def _list_free(self, claim: Claim, periods: Sequence[Period]) -> Sequence[int]:
        """Return the free GPUs, with those of the job itself: with and without the reserved ones."""
        amounts = list[int]()
        for period in periods:
            reserved = {each.pod for each in self._list_reservations(period)}
            others = {
                pod: share.gpus for pod in reserved if (share := self.cluster.shares[pod]).job != claim.job
            }
            for each in self.cluster.iter_period(*period):
                free = sum(each.free.values()) + each.held.get(claim.job, 0)
                amounts += [free, free - sum(gpus for pod, gpus in others.items() if pod not in each.bound)]
        return amounts

    def _list_lacking(self, claim: Claim, periods: Sequence[Period]) -> Sequence[int]:
        """Return the numbers of nodes with too few GPUs for a replica: with and without the reserved GPUs."""
        counts = list[int]()
        for period in periods:
            reserved = {(each.pod, each.node) for each in self._list_reservations(period)}
            for each in self.cluster.iter_period(*period):
                unreserved = self._subtract_reserved(each, reserved)
                for free in (each.free, unreserved):
                    counts.append(sum(amount < claim.gpus for amount in free.values()))
        return counts

    def _list_reservations(self, period: Period) -> Sequence[Reservation]:
        first, last = period
        return [
            each
            for each in self.reservations
            if each.first <= last and self._find_end(each) >= first and each.pod in self.cluster.shares
        ]

    def _find_end(self, reservation: Reservation) -> float:
        """Return the time from which the node of the pod is observed, or the pod has lost it."""
        settled = self.cluster.settled.get(reservation.pod, 0)
        return min(reservation.last, settled) if settled >= reservation.first else reservation.last

    def _subtract_reserved(self, snapshot: Snapshot, reserved: set[tuple[str, str]]) -> dict[str, int]:
        free = dict(snapshot.free)
        for pod, node in reserved:
            if pod not in snapshot.bound:
                free[node] -= self.cluster.shares[pod].gpus
        return free


def _list_periods(reports: Sequence[Report]) -> Sequence[Period]:
    return [(each.first - _SKEW, each.first + _SKEW) for each in reports]


def _read_shortages(message: str) -> set[int]:
    """Return the numbers of missing GPUs in the message of coscheduling or Kueue."""
    return {
        int(found["more"] or int(found["gap"]) * 10 ** int(found["scale"]))
        for found in _REPORTED_SHORTAGE.finditer(message)
    }


def _parse_time(clock: str, near: float) -> float:
    """Return the time of day of a message as seconds since the epoch."""
    day = datetime.fromtimestamp(near, timezone.utc)
    hours, minutes, seconds = map(int, clock.split(":"))
    return day.replace(hour=hours, minute=minutes, second=seconds, microsecond=0).timestamp()
