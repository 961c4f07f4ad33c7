"""The comparison of the storm accepts a number that a scheduler reported, and rejects any other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from gangs.observed_cluster import NODES, ObservedCluster, PodShare, Report, Snapshot
from gangs.reported_numbers import Claim, NumberComparison
from gangs.scheduler_log import Reservation, read_reservations

NOW = 1_800_000_000.0
GAP = "0/6 nodes are available: resource gap: map[nvidia.com/gpu:{{%d 0} {<nil>} %d DecimalSI}]."
AMOUNTS = "waiting for %d nvidia.com/gpu in the cluster: 8 requested, %d free"
LACKING = "no node of 6 fits: %d lack nvidia.com/gpu (requested: 4 nvidia.com/gpu)"
INSUFFICIENT = "0/6 nodes are available: %d Insufficient nvidia.com/gpu."


def snapshot(at: float, free: int, **fields: Any) -> Snapshot:
    """Return a state with these free GPUs on the first node, and none on the others."""
    nodes = {f"fake-{number}": free if number == 0 else 0 for number in range(NODES)}
    empty: Mapping[str, Any] = {"held": {}, "placed": {}, "bound": frozenset(), "quota": 0}
    return Snapshot(at=NOW + at, free=nodes, **{**empty, **fields})


def compare(
    message: str,
    history: Sequence[Snapshot],
    reports: Sequence[Report] = (),
    reservations: Sequence[Reservation] = (),
) -> list[tuple[str, str]]:
    """Return the violations of a claim of job ``a``, which has two replicas with four GPUs."""
    cluster: Any = ObservedCluster(api=None, has_workloads=False, seconds=0)  # type: ignore[arg-type]
    cluster.history = [*history]
    cluster.shares = {"a-worker-0": PodShare(job="a", gpus=4), "b-master-0": PodShare(job="b", gpus=6)}
    cluster.shares["b-worker-0"] = PodShare(job="b", gpus=6)
    cluster.settled = {"b-worker-0": NOW - 90}
    cluster._earlier = [*reports]
    numbers = NumberComparison(cluster=cluster, reservations=reservations, counts_all=False)
    claim = Claim(job="a", replicas=2, fewest=2, gpus=4, at=NOW, message=message)
    return [*numbers.iter_violations(claim)]


def report(message: str, first: float, last: float = 0.0, job: str = "a") -> Report:
    return Report(job=job, message=message, first=NOW + first, last=NOW + last)


OLD_FREE = (snapshot(-300, 6), snapshot(-100, 2), snapshot(-50, 5))


def test_number_is_compared_with_the_state_at_its_report() -> None:
    assert compare(AMOUNTS % (6, 2), OLD_FREE, [report(GAP % (6, 6), -80)]) == []
    assert compare(AMOUNTS % (3, 5), OLD_FREE, [report(GAP % (3, 3), -80)]) == [
        ("number of free", "5 is not in 2 to 2")
    ]


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [report(GAP % (5, 5), -80)],
        [report(GAP % (6, 6), -80, job="b")],
        [report(GAP % (6, 6), -80, last=-30)],
    ],
    ids=["none", "another number", "another job", "replaced"],
)
def test_number_that_no_present_report_has_is_a_violation(reports: Sequence[Report]) -> None:
    assert compare(AMOUNTS % (6, 2), OLD_FREE, reports) == [
        ("number of free", "2 is in no report of a scheduler")
    ]


def test_reserved_gpus_of_another_gang_may_be_free_or_not() -> None:
    history = [snapshot(-300, 6)]
    reports = [report(GAP % (8, 8), -80)]
    held = Reservation(pod="b-master-0", node="fake-0", first=NOW - 82, last=NOW - 81)
    assert compare(AMOUNTS % (8, 0), history, reports) == [("number of free", "0 is not in 6 to 6")]
    assert compare(AMOUNTS % (8, 0), history, reports, [held]) == []
    own = Reservation(pod="a-worker-0", node="fake-0", first=NOW - 82, last=NOW - 81)
    assert compare(AMOUNTS % (8, 0), history, reports, [own]) == [("number of free", "0 is not in 6 to 6")]
    earlier = Reservation(pod="b-master-0", node="fake-0", first=NOW - 200, last=NOW - 100)
    assert compare(AMOUNTS % (8, 0), history, reports, [earlier]) != []
    given = Reservation(pod="b-worker-0", node="fake-0", first=NOW - 100, last=NOW - 40)
    assert compare(AMOUNTS % (8, 0), history, reports, [given]) != []


def test_gpus_that_the_gang_got_after_the_report_were_free() -> None:
    history = [snapshot(-300, 6), snapshot(-1, 2, held={"a": 4}, bound=frozenset({"a-worker-0"}))]
    message = "waiting for 2 nvidia.com/gpu in the cluster: 8 requested, 4 held, 2 free"
    assert compare(message, history, [report(GAP % (2, 2), -80)]) == []


def test_number_with_a_time_is_compared_with_the_state_at_that_time() -> None:
    message = f"{AMOUNTS % (6, 2)} at 07:58:40 UTC"  # 80 s before.
    assert compare(message, OLD_FREE) == []
    assert compare(f"{AMOUNTS % (3, 5)} at 07:58:40 UTC", OLD_FREE) == [
        ("number of free", "5 is not in 2 to 2")
    ]


def test_request_of_one_replica_is_compared_with_the_free_gpus_without_those_of_its_gang() -> None:
    history = [snapshot(-300, 0, held={"a": 4}, bound=frozenset({"a-worker-0"}))]
    message = (
        "worker-1: waiting for 4 nvidia.com/gpu in queue root.team: 4 requested, %d free at 07:58:40 UTC"
    )
    assert compare(message % 0, history) == []
    assert ("number of free", "4 is not in 0 to 0") in compare(message % 4, history)


def test_reserved_gpus_of_any_gang_may_make_a_node_too_small() -> None:
    history = [snapshot(-300, 6)]
    assert compare(LACKING % 5, history, [report(INSUFFICIENT % 5, -80)]) == []
    reports = [report(INSUFFICIENT % 6, -80)]
    assert compare(LACKING % 6, history, reports) == [("number of lacking nodes", "6 is not in 5 to 5")]
    own = Reservation(pod="a-worker-0", node="fake-0", first=NOW - 82, last=NOW - 81)
    assert compare(LACKING % 6, history, reports, [own]) == []


def test_reservation_ends_with_a_rejection_or_another_node(tmp_path: Path) -> None:
    log = tmp_path / "kube-scheduler.log"
    context = 'plugin="Coscheduling" ExtensionPoint="Permit"'
    waits = f'"Pod is waiting to be scheduled to node" {context} pod="gangs/%s" nodeName="%s"'
    lines = [
        f"I1126 21:00:01.500000    1234 coscheduling.go:236] {waits % ('a-worker-0', 'fake-1')}",
        f"I1126 21:00:01.600000    1234 coscheduling.go:236] {waits % ('b-worker-0', 'fake-2')}",
        'E1126 21:00:01.700000    1234 core.go:1] "PreFilter failed" err="x" pod="gangs/a-worker-1"',
        'I1126 21:00:02.500000    1234 coscheduling.go:180] "PostFilter rejects the pod" '
        'podGroup="gangs/a" pod="gangs/a-worker-0"',
        f"I1126 21:00:09.600000    1234 coscheduling.go:236] {waits % ('b-worker-0', 'fake-3')}",
    ]
    log.write_text("\n".join(lines))
    found = [(each.pod, each.node, round(each.last - each.first, 3)) for each in read_reservations(log)]
    assert found == [("a-worker-0", "fake-1", 1), ("b-worker-0", "fake-2", 8), ("b-worker-0", "fake-3", 60)]
    assert read_reservations(tmp_path / "absent.log") == []
