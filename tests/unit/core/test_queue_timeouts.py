# ruff: noqa: E501 - a row a case
"""Tests for the queue timeout by the cause of the wait; queue time does not count as run time."""

import pytest
from cluster import RUNNING, condition, running, verdict
from waiting_gang import build_waiting_members, gang, group

from backend_plugin.core import settings
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging_context import JudgingContext

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


@pytest.mark.parametrize(
    ("message", "now", "phase"),
    [
        (FULL, 100_000, "WAITING_FOR_RESOURCES"),
        (BEYOND, 50, "WAITING_FOR_RESOURCES"),
        (BEYOND, 70, "RETRYABLE_FAILED"),
    ],
)
def test_queue_timeout_depends_on_the_cause_of_the_wait(message, now, phase):
    assert verdict(**queued(message), now=now, rules=rules(**BY_CAUSE)).phase.value == phase


@pytest.mark.parametrize(("now", "phase"), [(100, "WAITING_FOR_RESOURCES"), (130, "RETRYABLE_FAILED")])
def test_node_wait_has_the_timeout_of_its_cause(now, phase):
    result = verdict(gang(), *build_waiting_members(NO_NODE), now=now, rules=rules(**BY_CAUSE))
    assert result.phase.value == phase


def test_cause_without_its_own_timeout_has_the_default_timeout():
    usual = rules(**{"queue-timeout": "10m", "queue-timeout-by-cause": {"quota-exceeded": "1m"}})
    assert verdict(**queued(FULL), now=590, rules=usual).phase.value == "WAITING_FOR_RESOURCES"
    assert verdict(**queued(FULL), now=610, rules=usual).phase.value == "RETRYABLE_FAILED"


def test_missing_queue_has_its_own_timeout():
    judged = rules(**{"queue-timeout-by-cause": {"invalid-config": "1m"}})
    result = verdict(**queued("LocalQueue team doesn't exist"), now=70, rules=judged)
    assert (result.phase.value, result.cause and result.cause.value) == ("FAILED", "invalid-config")


def test_timeout_of_the_author_takes_precedence():
    own = rules(Deadlines(queue_seconds=30), **BY_CAUSE)
    assert verdict(**queued(FULL), now=40, rules=own).phase.value == "RETRYABLE_FAILED"


def test_deadline_counts_from_the_first_running_condition():
    limited = rules(**{"active-deadline": "1h"})
    waited = gang({**RUNNING, "lastTransitionTime": "2026-01-01T10:00:00Z"}, workers=1)
    pods = [running(name, since=36_000) for name in ("master-0", "worker-0")]
    assert verdict(waited, *pods, now=36_000 + 3_500, rules=limited).phase.value == "RUNNING"
    over = verdict(waited, *pods, now=36_000 + 3_700, rules=limited)
    assert over.reason == "DeadlineExceeded"
