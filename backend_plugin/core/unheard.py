"""Ends of pods of which we have yet to hear: a watch may lag, or be mute.

Lives here: whether there may be one that has ended a job. Does not: asking, `shell.endings`.
"""

from backend_plugin.core import blame, deaths, kept_verdict, status
from backend_plugin.core.observed import Observed
from backend_plugin.core.status import State


def has_unheard_end(observed: Observed) -> bool:
    """Whether a job has failed by the end of a pod, perhaps, of which we have yet to hear.

    So it is where no end is known; and where a pod is said to run, while all that is known are consequences,
    or the operator has seen that very pod end.
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
    """Whether the job itself says why it failed, which stands."""
    said = observed.job.annotations.get(kept_verdict.ANNOTATION) if observed.job else None
    return said is not None and kept_verdict.read(said) is not None
