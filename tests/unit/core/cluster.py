"""Builders for objects of a cluster as JSON, with only the fields that the tests need."""

from datetime import datetime, timedelta, timezone

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import judge

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
LABEL = "training.kubeflow.org/"


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def condition(kind: str, status: str = "True", *, since: float = 100, **more):
    return {"type": kind, "status": status, "lastTransitionTime": at(since), **more}


def job(*conditions, workers: int = 1, started: float | None = 1, **policy):
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


def pod(name: str, phase: str = "Running", *, container=None, **status):
    role, _, index = name.partition("-")
    metadata = {
        "name": f"j-{name}",
        "creationTimestamp": at(1),
        "ownerReferences": [{"uid": "u"}],
        "labels": {LABEL + "job-name": "j", LABEL + "replica-type": role, LABEL + "replica-index": index},
        **status.pop("metadata", {}),
    }
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": status.pop("node", "n1")},
        "status": {
            "phase": phase,
            "containerStatuses": [] if container is None else [{"name": "pytorch", **container}],
            **status,
        },
    }


def running(name: str, since: float = 5):
    return pod(name, container={"state": {"running": {"startedAt": at(since)}}})


def build_ended_pod(name: str, code: int, reason: str = "Error", *, finished: float = 90, **status):
    """Build a pod with a terminated container; `reason_of_pod` and `container_message` are optional."""
    message, of_pod = status.pop("container_message", ""), status.pop("reason_of_pod", "")
    times = {"startedAt": at(5), "finishedAt": at(finished)}
    container = {"state": {"terminated": {"exitCode": code, "reason": reason, "message": message, **times}}}
    return pod(name, "Failed" if code else "Succeeded", container=container, reason=of_pod, **status)


def waiting(name: str, reason: str, message: str = "", **more):
    scheduled = condition("PodScheduled", since=10)
    container = {"image": "train:1", "state": {"waiting": {"reason": reason, "message": message}}, **more}
    return pod(name, "Pending", container=container, conditions=[scheduled])


def unplaced(name: str, message: str, reason: str = "Unschedulable"):
    unscheduled = condition("PodScheduled", "False", since=2, reason=reason, message=message)
    return pod(name, "Pending", node="", conditions=[unscheduled])


def with_metadata(made, **metadata):
    return {**made, "metadata": {**made["metadata"], **metadata}}


def anew(made, created: float = 160):
    """Return the pod with a later creation time, as the replacement of a lost pod."""
    return with_metadata(made, creationTimestamp=at(created))


def going(made, ordered: float = 100):
    """Return the pod with a deletion request at the time `ordered`, in seconds."""
    return with_metadata(made, deletionTimestamp=at(ordered + 30), deletionGracePeriodSeconds=30)


def error_file(worker: str = "j-worker-0", exception: str = "ValueError: no data", **more):
    frame = '  File "/root/train.py", line 7, in train\n    run()'
    trace = f"Traceback (most recent call last):\n{frame}\n{exception}"
    message = f"Trace:\n\n    {trace}\nMessage:\n\n    {exception}"
    error = {"code": "USER:X", "message": message, "kind": "NON_RECOVERABLE", "origin": "USER", **more}
    return {"path": "s3://b/error-1.pb", "error": {"timestamp": at(89), "worker": worker, **error}}


# The report of a failed agent of torchrun.
TORCHRUN = """RuntimeError:
============================================================
train FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:01:29
  host      : j-worker-0
  rank      : 3 (local_rank: 1)
  exitcode  : {code} (pid: 12)
  error_file: <N/A>
  traceback : {trace}
============================================================"""
FAILED = condition(
    "Failed", reason="PyTorchJobFailed", message="PyTorchJob j is failed because 1 Worker replica(s) failed."
)
SUCCEEDED = condition("Succeeded", reason="PyTorchJobSucceeded")
RUNNING = condition("Running", since=6)


def observe(job, *pods, **more) -> Observed:
    return read_observed({"job": job, "pods": list(pods), **more})


def verdict(job, *pods, now: float = 200, rules: JudgingContext | None = None, **more) -> Verdict:
    return judge(observe(job, *pods, **more), rules or JudgingContext(), BEGAN + timedelta(seconds=now))


def short(result: Verdict) -> tuple[str, str, str | None]:
    return result.phase.value, result.reason, result.cause.value if result.cause else None
