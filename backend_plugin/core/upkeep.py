"""What is left to do for a job that has ended, or that is to end: nobody else stops it.

Lives here: which edits and deletions a verdict asks for, and the verdict as the job keeps it. Does not:
asking the cluster, which `shell.keeper` does. Flyte sends no Delete after a failure without retries.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from backend_plugin.core.observed import Job, Observed
from backend_plugin.core.task_phase import Phase, TaskPhase
from backend_plugin.core.values import Manifest
from backend_plugin.core.verdict import ANNOTATION, encode

FAILURES: Final = (Phase.FAILED, Phase.RETRYABLE_FAILED)


class Duties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to ask of the cluster; nothing, mostly."""

    patch: Manifest | None = None
    """An edit of the job that ends it, and has it say why."""
    pods: tuple[str, ...] = ()
    """Pods that nobody else would stop."""

    def __bool__(self) -> bool:
        return self.patch is not None or bool(self.pods)


NONE: Final = Duties()


def duties(observed: Observed, verdict: TaskPhase, now: datetime) -> Duties:
    """The edits and deletions that a verdict asks for; none where all is done already."""
    job = observed.job
    if job is None or job.deleting or verdict.phase not in FAILURES:
        return NONE
    if not _has_ended(job):
        # An edit that has been made shows in the annotation; the operator does the rest.
        return NONE if ANNOTATION in job.annotations else Duties(patch=_end(job, verdict, now))
    # The operator leaves the peers of a failed replica running, and they keep their GPUs.
    left = [pod.name for pod in observed.pods if pod.phase in ("Pending", "Running") and pod.deleted is None]
    return Duties(pods=tuple(left)) if left else NONE


def is_over(observed: Observed) -> bool:
    """Whether a job has ended, or is about to be gone: what it has left is all that there will be."""
    job = observed.job
    return job is None or job.deleting or _has_ended(job)


def _has_ended(job: Job) -> bool:
    return any(each.true and each.type in ("Succeeded", "Failed") for each in job.conditions)


def _end(job: Job, verdict: TaskPhase, now: datetime) -> Mapping[str, Manifest]:
    """By its deadline a job that has its pods ends for good; one without is held back from making them."""
    policy: Manifest = (
        {"suspend": True}
        if job.started is None
        else {"activeDeadlineSeconds": 1, "cleanPodPolicy": "Running", "suspend": False}
    )
    annotations = {ANNOTATION: encode(verdict, now)}
    return {"metadata": {"annotations": annotations}, "spec": {"runPolicy": policy}}
