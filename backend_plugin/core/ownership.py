"""Detection of orphan candidates: jobs without an owner whose Flyte execution may be gone."""

from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core import names, task_annotation
from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.job import Attempt, OwnerReference
from backend_plugin.core.judging.verdict_annotation import find_ending_verdict
from backend_plugin.core.observed import Job
from backend_plugin.core.values import Manifest

WORKFLOW: Final = "kfpytorch.flyte.org/workflow-location"
"""The annotation with the location of the execution's FlyteWorkflow if the workflow does not own the job."""
_OTHER_CLUSTER: Final = "other-cluster"


def is_owner_unknown(job: Job) -> bool:
    """True if neither an owner reference nor the annotation `WORKFLOW` shows where the job's workflow is.

    False for a job that is already being deleted.
    """
    return not (job.owned or job.deleting or job.annotations.get(WORKFLOW))


def find_orphan_candidate(job: Job, now: datetime, least_age: timedelta) -> Attempt | None:
    """Return the attempt of a job without an owner whose Flyte execution may be gone; otherwise None.

    A job that was created or has ended less than `least_age` ago is left out. An ended job with a time to
    live is also left out.
    """
    since, expires = _get_end(job)
    if not is_owner_unknown(job) or since is None or now - since < least_age or expires:
        return None
    recorded = task_annotation.read(job.annotations, job.namespace)
    if recorded is None:
        return None
    return recorded.run if recorded.run.execution and recorded.run.output_prefix else None


def _get_end(job: Job) -> tuple[datetime | None, bool]:
    """Return when a job ended (or was created, if it is active), and whether an ended job expires."""
    if (end := job.end_condition) is not None:
        return end.since, job.expires
    ends_by_suspension = get_dialect(job.dialect).ends_by_suspension
    if ends_by_suspension and (verdict := find_ending_verdict(job)) is not None:
        return verdict.at, job.ttl is not None
    return job.created, False


def build_ownership_patch(owner: OwnerReference | None) -> Manifest:
    """Return the merge patch that sets `owner` as the owner of a job.

    For None, the patch sets an annotation instead: the workflow of the job is in another cluster.
    """
    if owner is None:
        return {"metadata": {"annotations": {WORKFLOW: _OTHER_CLUSTER}}}
    return {"metadata": {"ownerReferences": names.build_owner_references(owner)}}
