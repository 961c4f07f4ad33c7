"""Builders for a job and its conditions as JSON, with only the fields that tests need, and its verdict."""

from datetime import datetime, timedelta, timezone

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import judge

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def at(seconds):
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def condition(kind, status="True", *, since=100, **more):
    return {"type": kind, "status": status, "lastTransitionTime": at(since), **more}


def job(*conditions, workers=1, started=1, **policy):
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": workers}}
    has_status = conditions or started is not None
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "creationTimestamp": at(0)},
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": roles},
        "status": {
            "conditions": [condition("Created", since=0), *conditions] if has_status else [],
            "startTime": None if started is None else at(started),
        },
    }


FAILED = condition(
    "Failed", reason="PyTorchJobFailed", message="PyTorchJob j is failed because 1 Worker replica(s) failed."
)
SUCCEEDED = condition("Succeeded", reason="PyTorchJobSucceeded")
RUNNING = condition("Running", since=6)


def observe(job, *pods, **more):
    return read_observed({"job": job, "pods": list(pods), **more})


def verdict(job, *pods, now=200, rules=None, **more):
    return judge(observe(job, *pods, **more), rules or JudgingContext(), BEGAN + timedelta(seconds=now))


def short(result):
    return result.phase.value, result.reason, result.cause.value if result.cause else None
