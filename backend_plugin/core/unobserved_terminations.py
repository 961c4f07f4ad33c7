"""Detection of unobserved terminations, which a slow or stalled watch has not delivered."""

from backend_plugin.core import root_cause, status, terminations, verdict_annotation
from backend_plugin.core.job_status import JobState
from backend_plugin.core.observed import Observed


def has_unobserved_termination(observed: Observed) -> bool:
    """True if the job failed and the watch may not have delivered the termination that caused it.

    This is the case if no termination is known. It is also the case if the operator reports the end of a pod
    that still appears to run. The third case is a running pod while all known terminations are consequences.
    """
    seen = status.compute_status(observed, {})
    if seen.state is not JobState.FAILED or _has_recorded_verdict(observed):
        return False
    if seen.death is None:
        return True
    running = {pod.name for pod in seen.pods if terminations.is_pod_alive(pod)}
    unwritten = running.difference(file.worker for file in observed.error_files)
    return seen.death.pod in unwritten or (bool(running) and not root_cause.is_possible_cause(seen.death))


def _has_recorded_verdict(observed: Observed) -> bool:
    """True if a failure verdict is stored on the job."""
    said = observed.job.annotations.get(verdict_annotation.ANNOTATION) if observed.job else None
    return said is not None and verdict_annotation.read(said) is not None
