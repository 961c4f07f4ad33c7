"""Detection of unobserved terminations, which a slow or stalled watch has not delivered."""

from backend_plugin.core import root_cause, status, terminations, verdict_annotation
from backend_plugin.core.job_status import JobState
from backend_plugin.core.observed import Observed


def has_unobserved_termination(observed: Observed) -> bool:
    """True if the job failed and the watch may not have delivered the termination that caused it.

    This is the case if no termination is known. It is also the case if the operator reports the end of a pod
    that still appears to run. The third case is a running pod while all known terminations are consequences.
    """
    job_status = status.compute_status(observed, {})
    if job_status.state is not JobState.FAILED or _has_recorded_verdict(observed):
        return False
    if job_status.death is None:
        return True
    running = {pod.name for pod in job_status.pods if terminations.is_pod_alive(pod)}
    unwritten = running.difference(file.worker for file in observed.error_files)
    return job_status.death.pod in unwritten or (
        bool(running) and not root_cause.is_possible_cause(job_status.death)
    )


def _has_recorded_verdict(observed: Observed) -> bool:
    """True if a failure verdict is stored on the job."""
    annotation = observed.job.annotations.get(verdict_annotation.ANNOTATION) if observed.job else None
    return annotation is not None and verdict_annotation.read(annotation) is not None
