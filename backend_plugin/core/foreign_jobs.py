"""The state of a foreign job, which this backend did not create and never changes."""

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects import table
from backend_plugin.core.errors import BackendError
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.observed import Job

PHASES = {
    job_conditions.SUCCEEDED: Phase.SUCCEEDED,
    job_conditions.FAILED: Phase.FAILED,
    job_conditions.SUSPENDED: Phase.QUEUED,
    job_conditions.RESTARTING: Phase.INITIALIZING,
    job_conditions.RUNNING: Phase.RUNNING,
}
"""Flyte phases by the type of a job condition; the first type whose condition is true applies."""


class ForeignJob(BackendError):
    """The job cannot be used, because another client created it."""


def describe(job: Job) -> Verdict:
    """Return the Flyte phase of a job that another client created, for display only."""
    true = {each.type: each for each in job.conditions if each.true}
    for kind, phase in PHASES.items():
        if kind in true:
            return Verdict(phase=phase, reason=true[kind].reason or kind, message=true[kind].message)
    return Verdict(phase=Phase.INITIALIZING, reason=job_conditions.CREATED, message="")


def format_refusal(job: Job) -> str:
    """Return the error message for a request to change a job that another client created."""
    resource = table.get_dialect(job.dialect).resource
    what = f"{resource.plural}.{resource.group}"
    return (
        f"{resource.kind} {job.namespace}/{job.name} was not created by this connector, which only lists it; "
        f"to end it, run: kubectl delete {what} {job.name} --namespace {job.namespace}"
    )
