"""Builders for pods and error files as JSON, with only the fields that the tests need."""

from cluster import at, condition

LABEL = "training.kubeflow.org/"


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
