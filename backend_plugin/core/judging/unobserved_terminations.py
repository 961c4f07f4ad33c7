"""Detection of unobserved terminations, which a slow or stalled watch has not delivered."""

from collections.abc import Sequence

from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import root_cause, status, terminations
from backend_plugin.core.judging.job_status import JobState
from backend_plugin.core.judging.terminations import ReplicaTermination
from backend_plugin.core.judging.verdict_annotation import find_recorded_verdict
from backend_plugin.core.observed import Observed


def has_unobserved_termination(observed: Observed) -> bool:
    """True if the job failed and the watch may not have delivered the termination that caused it.

    There are three cases: no termination is known; the operator reports the end of a pod that appears to run;
    a pod appears to run, and all known terminations are consequences of one that is unknown.
    """
    job_status = status.compute_status(observed, {})
    if job_status.state is not JobState.FAILED or find_recorded_verdict(observed.job) is not None:
        return False
    running = {pod.name for pod in job_status.pods if terminations.is_pod_alive(pod)}
    return _is_cause_missing(job_status.death, running, observed.error_files)


def _is_cause_missing(
    death: ReplicaTermination | None, running: set[str], files: Sequence[ErrorFile]
) -> bool:
    if death is None or (running and not root_cause.is_possible_cause(death)):
        return True
    return death.pod in running.difference(file.worker for file in files)
