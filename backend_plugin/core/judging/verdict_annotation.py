"""The annotation that stores the failure of a job, so that every server returns the same phase."""

from datetime import datetime
from typing import Final

import msgspec

from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.observed import Job, get_end_time
from kfpytorch_common.causes import Cause

ANNOTATION: Final = "kfpytorch.flyte.org/verdict"


class RecordedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The failure that an annotation of a job stores, and the time at which it was stored."""

    reason: str
    message: str
    cause: Cause
    retry: bool
    at: datetime


def encode(verdict: Verdict, at: datetime) -> str:
    """Return the annotation value that stores the verdict on a failed job; `at` is the time of storage."""
    record = RecordedVerdict(
        reason=verdict.reason,
        message=verdict.message,
        cause=verdict.cause or Cause.SYSTEM_ERROR,
        retry=verdict.retry,
        at=at,
    )
    return msgspec.json.encode(record).decode()


def read(annotation: str) -> RecordedVerdict | None:
    """Return the failure that an annotation value stores; None if the value is invalid."""
    try:
        return _DECODER.decode(annotation)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def find_recorded_verdict(job: Job | None) -> RecordedVerdict | None:
    """Return the failure that the job's annotation stores; None without a job or a valid annotation."""
    annotation = None if job is None else job.annotations.get(ANNOTATION)
    return None if annotation is None else read(annotation)


def find_ending_verdict(job: Job) -> RecordedVerdict | None:
    """Return the stored failure because of which a server ended a job; None if no server ended the job.

    Also return None if the job has a final condition. A server ends a TrainJob, and a job without pods, by
    a suspension, which never sets a final condition.
    """
    return find_recorded_verdict(job) if job.ending and job.end_condition is None else None


def find_end_time(job: Job) -> datetime | None:
    """Return the time at which a job ended by itself or a server ended it; None if the job has not ended."""
    verdict = find_ending_verdict(job)
    return get_end_time(job, job.end_condition) if verdict is None else verdict.at


_DECODER: Final = msgspec.json.Decoder(RecordedVerdict)
