"""Reads from Kubernetes events the terminations of pods that no longer exist."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from signal import SIGTERM
from typing import Final

from backend_plugin.core.judging import error_parser, terminations
from backend_plugin.core.judging.terminations import ExitCodes, ReplicaTermination
from backend_plugin.core.observed import Event, Observed
from kfpytorch_common.causes import Cause

# Events with these reasons can cause the end of a job only within the next minute. Other events can cause it
# up to ten minutes later: peers notice a lost node late, and a container restarted in place has a backoff.
_PROMPT: Final = frozenset({"ExitedWithCode", "Preempted", "Evicted"})


def list_event_terminations(
    observed: Observed, ended: datetime | None, exit_codes: ExitCodes
) -> list[ReplicaTermination]:
    """Return the last termination of each pod that no longer exists, as events report it.

    Events long before `ended`, the end of the job, are ignored. The limit is one minute for exits,
    preemptions and evictions by the kubelet, and ten minutes for other events.
    """
    existing = {pod.name for pod in observed.pods}
    last: dict[str, ReplicaTermination] = {}
    for event in (each for each in observed.events if _is_recent(each, ended)):
        termination = _find_event_termination(event, exit_codes, launcher=observed.has_launcher)
        if termination is not None and termination.pod not in existing:
            last[termination.pod] = max(
                last.get(termination.pod, termination),
                termination,
                key=lambda each: (each.failure.time_ns, each.summary),
            )
    return list(last.values())


def _is_recent(event: Event, ended: datetime | None) -> bool:
    recent = timedelta(minutes=1 if event.reason in _PROMPT else 10)
    return event.at is None or ended is None or ended - event.at <= recent


def _find_event_termination(
    event: Event, exit_codes: ExitCodes, *, launcher: bool
) -> ReplicaTermination | None:
    if event.kind == "Pod":
        return _find_pod_removal(event, launcher=launcher)
    pod, code = error_parser.parse_exit_event(event.message)
    if not code:
        return None
    # The operator writes 0xbeef if it has not found an exit code.
    known = Cause.SYSTEM_ERROR if code == 0xBEEF else terminations.CONTAINER_REASONS.get(event.reason)
    replica, stopped = error_parser.parse_replica_name(pod), terminations.decode_signal(code) == SIGTERM
    what = f"{event.reason}, " if event.reason in terminations.CONTAINER_REASONS else ""
    return ReplicaTermination(
        failure=terminations.build_exit_code_failure(replica, code, event.at, stopped=stopped),
        cause=known or terminations.classify_exit_code(code, exit_codes),
        summary=f"{what}{terminations.format_exit(code)}",
        pod=pod,
        at=event.at,
        ordered=True,
    )


_TAKEN: Final[Mapping[str, Cause]] = {
    "Preempted": Cause.PREEMPTED,
    "Evicted": Cause.SYSTEM_ERROR,
    "TaintManagerEviction": Cause.NODE_LOST,
    "NodeNotReady": Cause.NODE_LOST,
}
"""The causes of the removal of a pod, by the reason of the event that reports the removal."""


def _find_pod_removal(event: Event, *, launcher: bool) -> ReplicaTermination | None:
    cause = _TAKEN.get(event.reason)
    if cause is None or event.message.startswith("Cancelling deletion"):
        return None
    replica = error_parser.parse_replica_name(event.name, launcher=launcher)
    return ReplicaTermination(
        failure=terminations.build_exit_code_failure(replica, 0, event.at),
        cause=cause,
        summary=f"{event.reason}: {event.message}" if event.message else event.reason,
        pod=event.name,
        at=event.at,
        ordered=True,
        explained=True,
    )
