"""Whether a job may be nobody's, by what it says itself of the execution that it is for.

Lives here: which jobs are in question, and what is written on one when it is known where its execution is.
Does not: asking for the execution, `shell.orphans`.

A job with an owner goes with it: that is for Kubernetes. One without is in question. Its execution may be in
another cluster, and then nothing here says whether it lives; so who finds that out writes it on the job.
"""

from datetime import datetime, timedelta
from typing import Final

from backend_plugin.core import origin
from backend_plugin.core.job import OwnerReference, Run
from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Job
from backend_plugin.core.values import Manifest

WORKFLOW: Final = "kfpytorch.flyte.org/workflow"
"""The annotation of a job: where the FlyteWorkflow of its execution is, if it is not its owner."""
_ELSEWHERE: Final = "elsewhere"


def is_open(job: Job) -> bool:
    """Whether nothing on the job says where its execution is."""
    return not (job.owned or job.deleting or job.annotations.get(WORKFLOW))


def in_question(job: Job, now: datetime, least_age: timedelta) -> Run | None:
    """The attempt of a job that is nobody's if its execution is gone; None for every other job.

    One that is younger than `least_age` is not in question, nor is one that has ended a shorter time ago, or
    that is removed some time after its end anyway.
    """
    since = job.end.since if job.end is not None else job.created
    if not is_open(job) or since is None or now - since < least_age or (job.end and job.expires):
        return None
    whose = origin.read(job.annotations, job.namespace)
    return whose.run if whose is not None and whose.run.execution and whose.run.output_prefix else None


def settled(owner: OwnerReference | None) -> Manifest:
    """What is to be merged into a job that somebody asks about, so that it is in question no more.

    Without an owner its execution is elsewhere: it lives, for it is asked about, and it is not here.
    """
    if owner is None:
        return {"metadata": {"annotations": {WORKFLOW: _ELSEWHERE}}}
    return {"metadata": {"ownerReferences": names.owner_references(owner)}}
