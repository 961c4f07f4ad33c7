# ruff: noqa: E501 - a row a case
"""Tests for the queue timeout by the cause of the wait; queue time does not count as run time."""

import pytest
from cluster import RUNNING, condition, running, verdict
from waiting_gang import build_waiting_members, gang, group

from backend_plugin.core import settings
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging.context import JudgingContext

FULL = "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor any, 4 more needed"
BEYOND = (
    "insufficient quota for cpu in flavor any, previously considered podsets requests (2)"
    " + current podset request (8) > maximum capacity (8)"
)
NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."


def rules(deadlines=None, **timeouts):
    judging = settings.read({"kfpytorch": {"timeouts": timeouts}}).judging
    return JudgingContext(judging=judging, deadlines=deadlines or Deadlines())


def queued(message):
    held = condition("QuotaReserved", "False", reason="Pending", message=message)
    workload = group("kueue.x-k8s.io", held, kind="Workload", spec={"queueName": "team"})
    return {"job": gang(condition("Suspended"), started=None), "pod_groups": [workload]}


BY_CAUSE = {
    "queue-timeout": "10m",
    "queue-timeout-by-cause": {"queue": "0", "unschedulable": "2m", "unsatisfiable": "1m"},
}


OTHER_CAUSE = {"queue-timeout": "10m", "queue-timeout-by-cause": {"quota-exceeded": "1m"}}
OWN = rules(Deadlines(queue_seconds=30), **BY_CAUSE)
NO_QUEUE = "LocalQueue team doesn't exist"


@pytest.mark.parametrize(
    ("message", "rules", "last", "phase"),
    [
        (BEYOND, rules(**BY_CAUSE), 60, "RETRYABLE_FAILED"),
        (NO_NODE, rules(**BY_CAUSE), 120, "RETRYABLE_FAILED"),
        (NO_QUEUE, rules(**{"queue-timeout-by-cause": {"invalid-config": "1m"}}), 60, "FAILED"),
        # A cause without its own timeout has the usual one.
        (FULL, rules(**OTHER_CAUSE), 600, "RETRYABLE_FAILED"),
        # The timeout of the task's author takes precedence.
        (FULL, OWN, 30, "RETRYABLE_FAILED"),
        (FULL, rules(**BY_CAUSE), 100_000, "WAITING_FOR_RESOURCES"),
    ],
)
def test_queue_timeout_depends_on_the_cause_of_the_wait(message, rules, last, phase):
    of_nodes = {"job": gang(), "pods": build_waiting_members(NO_NODE)}
    waits = of_nodes if message == NO_NODE else {"pods": [], **queued(message)}
    job, pods = waits.pop("job"), waits.pop("pods")
    early, late = (verdict(job, *pods, **waits, now=last + more, rules=rules) for more in (-10, 10))
    assert (early.phase.value, late.phase.value) == ("WAITING_FOR_RESOURCES", phase)


def test_deadline_counts_from_the_first_running_condition():
    limited = rules(**{"active-deadline": "1h"})
    waited = gang({**RUNNING, "lastTransitionTime": "2026-01-01T10:00:00Z"}, workers=1)
    pods = [running(name, since=36_000) for name in ("master-0", "worker-0")]
    assert verdict(waited, *pods, now=36_000 + 3_500, rules=limited).phase.value == "RUNNING"
    over = verdict(waited, *pods, now=36_000 + 3_700, rules=limited)
    assert over.reason == "DeadlineExceeded"
