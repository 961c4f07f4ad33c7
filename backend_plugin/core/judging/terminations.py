"""Converts pod states to terminations with a cause. `root_cause` selects one of them as the root cause."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from signal import SIGABRT, SIGKILL, SIGTERM
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from backend_plugin.core.dialects.table import INITIALIZERS, OPERATOR_CONTAINERS
from backend_plugin.core.observed import Container, ContainerTermination, Pod
from backend_plugin.core.package_installation import find_failure
from kfpytorch_common.causes import Cause, Failure, classify, format_signal

ExitCodes: TypeAlias = Mapping[int, Cause]
"""The causes that the settings of the platform assign to exit codes."""


class ReplicaTermination(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a replica that failed or was stopped, with its cause and time."""

    failure: Failure
    cause: Cause
    summary: str
    detail: str = ""
    """The message of the container or the traceback; may have several lines."""
    pod: str = ""
    at: datetime | None = None
    ordered: bool = False
    """True if the deletion of the pod was, or may have been, requested before the replica ended."""
    explained: bool = False
    """True if the cluster reports why the replica was ended; an exit code is then only the consequence."""


DISRUPTIONS: Final[Mapping[str, Cause]] = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.PREEMPTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByDeviceTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
}
"""The causes of pod disruptions, by the reason of the pod condition `DisruptionTarget`."""

POD_REASONS: Final[Mapping[str, Cause]] = {
    "Evicted": Cause.SYSTEM_ERROR,
    "Preempted": Cause.PREEMPTED,
    "Preempting": Cause.PREEMPTED,
    "Shutdown": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
    "NodeLost": Cause.NODE_LOST,
    "NodeAffinity": Cause.NODE_LOST,
    "OOMKilled": Cause.OOM_HOST,
    "DeadlineExceeded": Cause.USER_ERROR,  # The deadline in the pod spec, which the author sets.
    "OutOfcpu": Cause.SYSTEM_ERROR,
    "OutOfmemory": Cause.SYSTEM_ERROR,
    "OutOfpods": Cause.SYSTEM_ERROR,
    "UnexpectedAdmissionError": Cause.SYSTEM_ERROR,
    "TopologyAffinityError": Cause.SYSTEM_ERROR,
    "ResourceReservationTimeout": Cause.UNSCHEDULABLE,
    "ApplicationRejected": Cause.INVALID_CONFIG,
}
"""The causes of pod failures, by `status.reason`, which the kubelet, node controllers or YuniKorn set."""

CONTAINER_REASONS: Final[Mapping[str, Cause]] = {
    "OOMKilled": Cause.OOM_HOST,
    "ContainerStatusUnknown": Cause.NODE_LOST,
    "ContainerCannotRun": Cause.INVALID_CONFIG,
    "StartError": Cause.INVALID_CONFIG,
}
"""The causes of container failures, by `state.terminated.reason` of the container."""

EXIT_CODES: Final[Mapping[int, Cause]] = {
    125: Cause.SYSTEM_ERROR,  # The container runtime itself failed.
    126: Cause.INVALID_CONFIG,  # The command is not executable.
    127: Cause.INVALID_CONFIG,  # The image does not contain the command.
    128 + 2: Cause.PREEMPTED,  # SIGINT; a pod has no terminal where a user could interrupt it.
}
"""The causes of exit codes that user code does not set; `decode_signal` decodes all other signals."""

_UNKNOWN_END: Final = ContainerTermination(exit_code=None)
"""The termination of a pod that failed without a failed container."""
_LATEST: Final = 2**62
"""A time in nanoseconds since the epoch, later than any real time."""


def decode_signal(exit_code: int) -> int:
    """Return the signal n in an exit code: 128 + n (from shells) or 256 - n (from torchrun); 0 if none."""
    if 128 < exit_code <= 128 + 64:
        return exit_code - 128
    # subprocess returns -n for signal n, and the kernel keeps eight bits of it.
    return 256 - exit_code if 256 - 31 <= exit_code < 255 else 0


def classify_exit_code(exit_code: int, overrides: ExitCodes, termination_message: str = "") -> Cause:
    """Return the cause of a container's exit code, given its termination message.

    A failed installation of packages takes precedence over `overrides`, which precede the default causes.
    """
    if find_failure(exit_code, termination_message):
        return Cause.INVALID_CONFIG
    known = overrides.get(exit_code) or EXIT_CODES.get(exit_code)
    return known or classify(build_exit_code_failure("", exit_code, None, message=termination_message))


def find_pod_termination(pod: Pod, exit_codes: ExitCodes) -> ReplicaTermination | None:
    """Return how a pod failed, or why it is being removed; None if neither is the case."""
    container, ended = _find_failed_container(pod)
    if container is None and pod.phase != "Failed":
        return _find_pod_removal(pod)
    if _is_disrupted_after_exit(pod, ended):
        pod = structs.replace(pod, disrupted=None)
    at = _find_end_time(pod, ended.finished)
    cause = _classify_pod_failure(pod, container, ended, exit_codes)
    stopped = _is_stopped(pod, ended)
    is_reported = _is_reported(pod, container, ended)
    return ReplicaTermination(
        failure=build_exit_code_failure(pod.replica, ended.exit_code or 0, at, stopped=stopped),
        cause=cause,
        summary=_format_summary(pod, container, ended),
        detail=ended.message,
        pod=pod.name,
        at=at,
        ordered=can_follow_deletion(ended.finished, pod.deleted),
        explained=is_reported and cause not in (Cause.USER_ERROR, Cause.INVALID_CONFIG),
    )


def _is_reported(pod: Pod, container: Container | None, ended: ContainerTermination) -> bool:
    """True if the cluster reports a reason for the failure of the pod, or no container has failed."""
    return bool(pod.reason or pod.disrupted or container is None or ended.reason in CONTAINER_REASONS)


# The longest delay between a disruption and the condition that reports it, with the skew of their clocks.
_REPORT_DELAY: Final = timedelta(seconds=30)


def _is_disrupted_after_exit(pod: Pod, ended: ContainerTermination) -> bool:
    """True if the container ended by itself before the pod was disrupted: a drain evicts ended pods, too."""
    if pod.disrupted is None or pod.disrupted.since is None or ended.finished is None:
        return False
    by_itself = decode_signal(ended.exit_code or 0) not in (SIGKILL, SIGTERM)
    return by_itself and pod.disrupted.since - ended.finished > _REPORT_DELAY


def can_follow_deletion(at: datetime | None, deleted: datetime | None) -> bool:
    """True if the pod was deleted, and `at` may be later than its deletion."""
    return deleted is not None and (at is None or at >= deleted)


def _find_end_time(pod: Pod, finished: datetime | None) -> datetime | None:
    """Return the earliest time at which other pods of the job can have noticed the end of this pod.

    This is the time of its disruption, such as an eviction, or `finished`, the end of its container,
    whichever is earlier. Without both, it is the time since which the pod is not ready, or else the time
    of its deletion.
    """
    disrupted = None if pod.disrupted is None else pod.disrupted.since
    return min(filter(None, (disrupted, finished)), default=None) or find_unready_time(pod) or pod.deleted


def is_pod_alive(pod: Pod) -> bool:
    """True if a pod is running or pending, and is not deleted or disrupted.

    False if its training container has ended.
    """
    has_ended = pod.phase not in ("Pending", "Running") or pod.termination is not None
    return not has_ended and pod.deleted is None and pod.disrupted is None


def has_failed_by_itself(pod: Pod) -> bool:
    """True if a pod failed with an exit code other than 0 and those of SIGABRT, SIGKILL and SIGTERM."""
    termination = find_pod_termination(pod, {}) if pod.phase == "Failed" else None
    return termination is not None and termination.failure.exit_code not in (0, -SIGABRT, -SIGKILL, -SIGTERM)


def find_unready_time(pod: Pod) -> datetime | None:
    """Return the time since which the pod is not ready; None if it is ready or has no condition Ready."""
    return pod.ready.since if pod.ready is not None and not pod.ready.true else None


def _is_stopped(pod: Pod, ended: ContainerTermination) -> bool:
    """True if SIGTERM or the deletion of the pod stopped the replica, and the cluster reports no reason."""
    if pod.disrupted is not None or pod.reason or ended.reason == "OOMKilled":
        return False
    number = decode_signal(ended.exit_code or 0)
    if pod.deleted is None or ended.finished is None:
        return number == SIGTERM or (pod.deleted is not None and number == SIGKILL)
    # A process may exit with any code after SIGTERM.
    return ended.finished > pod.deleted or (
        number == SIGTERM or (number == SIGKILL and ended.finished == pod.deleted)
    )


def _find_failed_container(pod: Pod) -> tuple[Container | None, ContainerTermination]:
    others = [*pod.containers, *pod.init_containers] if pod.phase == "Failed" else []
    for container in (pod.primary, *others):
        if container is not None and container.ended is not None and container.ended.exit_code != 0:
            return container, container.ended
    return None, _UNKNOWN_END


def _classify_pod_failure(
    pod: Pod, container: Container | None, ended: ContainerTermination, exit_codes: ExitCodes
) -> Cause:
    if (known := _classify_reason(pod)) is not None:
        return known
    # The kubelet builds this reason from any resource name, as in OutOfnvidia.com/gpu.
    is_unknown = pod.reason.startswith("OutOf") or ended.exit_code is None
    if is_unknown or container is None or is_operator_container(container):
        return Cause.SYSTEM_ERROR
    cause = classify_container_termination(ended, exit_codes)
    if cause is Cause.USER_ERROR and pod.role in INITIALIZERS:  # It runs no code of the author.
        return Cause.SYSTEM_ERROR if _TEMPORARY.search(ended.message) else Cause.INVALID_CONFIG
    return cause


def _classify_reason(pod: Pod) -> Cause | None:
    known = POD_REASONS.get(pod.reason)
    if pod.disrupted is None:
        return known
    return DISRUPTIONS.get(pod.disrupted.reason) or known or Cause.NODE_LOST


def is_operator_container(container: Container) -> bool:
    """True if the container is an init container that an operator adds."""
    return container.init and container.name in OPERATOR_CONTAINERS


# Parts of error messages of opendal and huggingface_hub, for errors that may not occur in another attempt.
_TEMPORARY: Final = re.compile(
    r"\btemporary\b|timed? ?out|ConnectionError|[Cc]onnection (reset|refused|aborted)|unreachable"
    r"|dispatch failed|name resolution|Max retries|\b(429|5\d\d) (Client|Server) Error|RateLimited"
)


def classify_container_termination(ended: ContainerTermination, exit_codes: ExitCodes) -> Cause:
    """Return the cause of a container's termination; the reason and conditions of the pod are ignored."""
    known = CONTAINER_REASONS.get(ended.reason)
    if known is Cause.INVALID_CONFIG and ended.message:
        return _classify_start_error(ended.message)
    return known or classify_exit_code(ended.exit_code or 0, exit_codes, ended.message)


def _classify_start_error(message: str) -> Cause:
    if "container init was OOM-killed" in message:  # runc's message for a low memory limit.
        return Cause.OOM_HOST
    return Cause.INVALID_CONFIG if is_permanent_start_error(message) else Cause.SYSTEM_ERROR


# Parts of a container runtime's messages which show that the container is invalid.
_HOPELESS: Final = (
    "no such file",
    "executable file not found",
    "permission denied",
    "not a directory",
    "no command specified",
    "invalid",
    "argument list too long",
)


def is_permanent_start_error(message: str) -> bool:
    """True if the message of a container runtime shows that the container is invalid and can never start."""
    lowered = message.lower()
    return any(phrase in lowered for phrase in _HOPELESS)


def _format_summary(pod: Pod, container: Container | None, ended: ContainerTermination) -> str:
    """Return a line on why a pod ended, such as ``Evicted: The node was low on resource: memory``."""
    why, more = pod.reason, pod.message.strip()
    if pod.disrupted is not None:
        why, more = why or pod.disrupted.reason, more or pod.disrupted.message
    if why:
        return f"{why}: {more}" if more else why
    if container is None:
        return pod.message or "it failed, and the cluster reports no reason"
    if failure := find_failure(ended.exit_code or 0, ended.message):
        return failure
    what = "" if ended.reason in ("Error", "Completed") else ended.reason
    kind = "init container" if container.init else "container"
    where = "" if container is pod.primary else f" in {kind} {container.name}"
    return ", ".join(filter(None, (what, format_exit(ended.exit_code)))) + where


def format_exit(exit_code: int | None) -> str:
    """Return an exit code with its signal, such as ``killed by SIGTERM (exit code 143)``."""
    code = exit_code or 0
    number = decode_signal(code) or -min(code, 0)
    name = format_signal(number) if number else ""
    return f"killed by {name} (exit code {code})" if name else f"exit code {exit_code}"


def _find_pod_removal(pod: Pod) -> ReplicaTermination | None:
    """Return the termination of a running pod that is disrupted or being deleted, otherwise None."""
    if pod.phase == "Succeeded" or (pod.deleted is None and pod.disrupted is None):
        return None
    known = _classify_reason(pod)
    at, summary = pod.deleted, "its pod is being deleted"
    if known is not None:
        at, summary = _find_end_time(pod, None), _format_summary(pod, None, _UNKNOWN_END)
    return ReplicaTermination(
        # A deletion without a reported reason may be the cleanup after the failure of another replica.
        failure=build_exit_code_failure(pod.replica, 0, at, stopped=known is None),
        cause=known or Cause.PREEMPTED,
        summary=summary,
        pod=pod.name,
        at=at,
        ordered=True,
        explained=known is not None,
    )


def list_restart_terminations(pods: Iterable[Pod], exit_codes: ExitCodes) -> list[ReplicaTermination]:
    """Return the failures after which containers were restarted, for the replicas with the most restarts.

    Each result is the end of the previous container run. Replicas whose previous run ended with exit code 0
    are ignored.
    """
    ends = [
        (structs.replace(pod, reason="", disrupted=None), container, container.last, code)
        for pod in pods
        if (container := pod.primary) is not None
        and container.last is not None
        and (code := container.last.exit_code)
    ]
    most = max((container.restarts for _, container, *_ in ends), default=0)
    return [
        ReplicaTermination(
            failure=build_exit_code_failure(pod.replica, code, last.finished),
            cause=classify_container_termination(last, exit_codes),
            summary=f"restarted {most} times, after {_format_summary(pod, container, last)}",
            detail=last.message,
            pod=pod.name,
            at=last.finished,
        )
        for pod, container, last, code in ends
        if container.restarts == most
    ]


def build_exit_code_failure(
    replica: str, code: int, at: datetime | None, *, message: str = "", stopped: bool = False
) -> Failure:
    """Return a failure for which only the exit code is available; `at` is the time of the failure.

    `stopped` is true if the replica was stopped, so that the failure of another replica may be the cause.
    """
    number = decode_signal(code)
    return Failure(
        rank=None,
        replica=replica,
        exit_code=-number if number else code,
        time_ns=_LATEST if at is None else int(at.timestamp()) * 10**9 + at.microsecond * 1000,
        message=message,
        stopped=stopped,
    )
