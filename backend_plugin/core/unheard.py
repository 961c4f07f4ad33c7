"""Detection of unobserved terminations, which a slow or stalled watch has not delivered.

`shell.endings` requests the missing pods from the API server.
"""

from backend_plugin.core import blame, deaths, kept_verdict, status
from backend_plugin.core.observed import Observed
from backend_plugin.core.status import State


def has_unheard_end(observed: Observed) -> bool:
    """True if the job failed and the watch may not have delivered the termination that caused it.

    This is the case if no termination is known. It is also the case if the operator reports the end of a pod
    that still appears to run. The third case is a running pod while all known terminations are consequences.
    """
    seen = status.read(observed, {})
    if seen.state is not State.FAILED or _is_decided(observed):
        return False
    if seen.death is None:
        return True
    running = {pod.name for pod in seen.pods if deaths.still_runs(pod)}
    unwritten = running.difference(file.worker for file in observed.error_files)
    return seen.death.pod in unwritten or (bool(running) and not blame.is_cause(seen.death))


def _is_decided(observed: Observed) -> bool:
    """True if a failure verdict is stored on the job."""
    said = observed.job.annotations.get(kept_verdict.ANNOTATION) if observed.job else None
    return said is not None and kept_verdict.read(said) is not None
