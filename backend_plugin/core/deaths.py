"""How replicas ended badly: pods and error files as `Failure`s, and which of them the others follow from.

Lives here: the tables from what Kubernetes says of an end to its cause. Does not: what Flyte makes of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from backend_plugin.core import error_text
from backend_plugin.core.observed import Container, ErrorFile, Event, Observed, Pod, Termination
from kfpytorch_common.causes import Cause, Failure, classify, is_consequence, root_cause


class Death(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One replica's bad end."""

    failure: Failure
    cause: Cause
    said: str
    """What happened to it, in one line."""
    detail: str = ""
    """What it said itself, with line ends."""
    recoverable: bool = False
    """The user's code said that a retry can help."""
    pod: str = ""
    at: datetime | None = None


DISRUPTIONS: Final[Mapping[str, Cause]] = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.PREEMPTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByDeviceTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
}
"""By the reason of the condition `DisruptionTarget`."""

POD_REASONS: Final[Mapping[str, Cause]] = {
    "Evicted": Cause.INFRA,
    "Preempted": Cause.PREEMPTED,
    "Preempting": Cause.PREEMPTED,
    "Shutdown": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
    "NodeLost": Cause.NODE_LOST,
    "NodeAffinity": Cause.NODE_LOST,
    "OutOfcpu": Cause.INFRA,
    "OutOfmemory": Cause.INFRA,
    "OutOfpods": Cause.INFRA,
    "UnexpectedAdmissionError": Cause.INFRA,
    "TopologyAffinityError": Cause.INFRA,
    "ResourceReservationTimeout": Cause.UNSCHEDULABLE,
    "ApplicationRejected": Cause.CONFIG,
}
"""By `status.reason` of a pod; the kubelet's, the node controllers' and YuniKorn's."""

CONTAINER_REASONS: Final[Mapping[str, Cause]] = {
    "OOMKilled": Cause.OOM_HOST,
    "ContainerStatusUnknown": Cause.NODE_LOST,
    "ContainerCannotRun": Cause.CONFIG,
    "StartError": Cause.CONFIG,
}
"""By `state.terminated.reason` of a container."""

EXIT_CODES: Final[Mapping[int, Cause]] = {
    125: Cause.INFRA,  # The container runtime itself failed.
    126: Cause.CONFIG,  # The command is no program.
    127: Cause.CONFIG,  # The image has no such command.
    128 + 2: Cause.PREEMPTED,  # Interrupted: nobody sits at a pod's terminal.
}
"""Exit codes that are not the user's own; signals are read by `signal_of`."""

_LATEST: Final = 2**62


def signal_of(exit_code: int) -> int:
    """The signal behind an exit code, 0 for none: 128 + n as shells say it, 256 - n as torchrun does."""
    if 128 < exit_code <= 128 + 64:
        return exit_code - 128
    # subprocess tells of signal n as -n, and the kernel keeps eight bits of it.
    return 256 - exit_code if 256 - 31 <= exit_code < 255 else 0


def cause_of_exit(exit_code: int, overrides: Mapping[int, Cause]) -> Cause:
    """What an exit code alone says."""
    known = overrides.get(exit_code) or EXIT_CODES.get(exit_code)
    return known or classify(_silent("", exit_code, None))


def of_pods(observed: Observed, exit_codes: Mapping[int, Cause]) -> list[Death]:
    """The pods that ended badly or are being taken away, by replica."""
    found = [death for pod in observed.pods if (death := of_pod(pod, exit_codes)) is not None]
    known = {pod.name for pod in observed.pods}
    return found + [
        death for event in observed.events if (death := _of_event(event, known, exit_codes)) is not None
    ]


def of_pod(pod: Pod, exit_codes: Mapping[int, Cause]) -> Death | None:
    """How a pod ended; None if it did not, or did well."""
    container, ended = _culprit(pod)
    if ended is None and pod.phase != "Failed":
        return _taken_away(pod, exit_codes)
    at = (
        (ended.finished if ended else None) or (pod.disrupted.since if pod.disrupted else None) or pod.deleted
    )
    code = (ended.exit_code if ended else None) or 0
    cause = _cause(pod, container, ended, exit_codes)
    failure = _silent(pod.replica, code, at)
    # Whoever is told to end, ends by SIGTERM, or by SIGKILL when it takes its time.
    ordered = pod.deleted is not None or signal_of(code) == 15
    by_us = ordered and pod.disrupted is None and not pod.reason and cause is not Cause.OOM_HOST
    return Death(
        failure=replace(failure, stopped=by_us and signal_of(code) in (9, 15)),
        cause=cause,
        said=_said(pod, container, ended),
        detail=ended.message if ended else "",
        pod=pod.name,
        at=at,
    )


def _culprit(pod: Pod) -> tuple[Container | None, Termination | None]:
    """The container that failed, the one that trains before all others."""
    primary = pod.primary
    others = [each for each in pod.containers if each is not primary] if pod.phase == "Failed" else []
    inits = pod.init_containers if pod.phase == "Failed" else ()
    for container in (*([primary] if primary else []), *others, *inits):
        if container.ended is not None and container.ended.exit_code != 0:
            return container, container.ended
    return None, None


def _cause(
    pod: Pod, container: Container | None, ended: Termination | None, exit_codes: Mapping[int, Cause]
) -> Cause:
    known = (DISRUPTIONS.get(pod.disrupted.reason) if pod.disrupted else None) or POD_REASONS.get(pod.reason)
    if known is not None:
        return known
    if pod.disrupted is not None and pod.disrupted.true:
        return Cause.NODE_LOST
    # The kubelet's for any resource: OutOfnvidia.com/gpu.
    if pod.reason.startswith("OutOf") or ended is None or ended.exit_code is None or container is None:
        return Cause.INFRA
    # The operator's own init container: it waits until the master's name is known.
    if container.init and container.name == "init-pytorch":
        return Cause.INFRA
    return CONTAINER_REASONS.get(ended.reason) or cause_of_exit(ended.exit_code, exit_codes)


def _said(pod: Pod, container: Container | None, ended: Termination | None) -> str:
    """``evicted: The node was low on resource: memory`` or ``exit code 3``."""
    why = pod.reason or (pod.disrupted.reason if pod.disrupted else "")
    if why:
        more = pod.message or (pod.disrupted.message if pod.disrupted else "")
        return f"{why}: {more}" if more else why
    if ended is None or container is None:
        return pod.message or "it failed, and nobody says why"
    code = ended.exit_code or 0
    name = _silent("", code, None).signal
    how = f"killed by {name} (exit code {code})" if name else f"exit code {ended.exit_code}"
    what = ended.reason if ended.reason not in ("", "Error", "Completed") else ""
    kind = "init container" if container.init else "container"
    where = "" if container is pod.primary else f" in {kind} {container.name}"
    return f"{what}, {how}{where}" if what else f"{how}{where}"


def _taken_away(pod: Pod, exit_codes: Mapping[int, Cause]) -> Death | None:
    """A pod that still runs but is being deleted, by the scheduler, a drain or a person."""
    if pod.deleted is None or pod.phase == "Succeeded":
        return None
    container = pod.primary
    if pod.disrupted is None and container is not None and container.last and container.last.exit_code:
        return _of_last(pod, container, container.last, exit_codes)
    cause = (DISRUPTIONS.get(pod.disrupted.reason) if pod.disrupted else None) or Cause.PREEMPTED
    said = _said(pod, None, None) if pod.disrupted else "its pod is being deleted"
    # Without anybody who owns up to it, it may well be the clean-up after another's failure.
    failure = replace(_silent(pod.replica, 0, pod.deleted), stopped=pod.disrupted is None)
    return Death(failure=failure, cause=cause, said=said, pod=pod.name, at=pod.deleted)


def _of_last(pod: Pod, container: Container, last: Termination, exit_codes: Mapping[int, Cause]) -> Death:
    """A pod that is removed because its container was restarted too often."""
    return Death(
        failure=_silent(pod.replica, last.exit_code or 0, last.finished),
        cause=_cause(pod, container, last, exit_codes),
        said=f"restarted {container.restarts} times, after {_said(pod, container, last)}",
        detail=last.message,
        pod=pod.name,
        at=last.finished,
    )


def _of_event(event: Event, known: set[str], exit_codes: Mapping[int, Cause]) -> Death | None:
    """The exit code of a pod that is gone, as the operator told it."""
    if event.reason != "ExitedWithCode":
        return None
    pod, code = error_text.exited(event.message)
    if not code or pod in known:
        return None
    # The operator writes 0xbeef where it has found no exit code.
    cause = Cause.INFRA if code == 0xBEEF else cause_of_exit(code, exit_codes)
    stopped = signal_of(code) == 15
    failure = replace(_silent(error_text.replica(pod), code, event.at), stopped=stopped)
    name = failure.signal
    said = f"killed by {name} (exit code {code})" if name else f"exit code {code}"
    return Death(failure=failure, cause=cause, said=said, pod=pod, at=event.at)


def _silent(replica: str, code: int, at: datetime | None) -> Failure:
    """A death without a word."""
    number = signal_of(code)
    return Failure(rank=None, replica=replica, exit_code=-number if number else code, time_ns=nanoseconds(at))


def nanoseconds(at: datetime | None) -> int:
    """A moment in nanoseconds since the epoch; one that nobody knows comes last."""
    return _LATEST if at is None else int(at.timestamp()) * 10**9 + at.microsecond * 1000


def of_files(files: Iterable[ErrorFile]) -> list[Death]:
    """The failures that workers wrote down themselves."""
    return [_of_file(each) for each in files]


def _of_file(file: ErrorFile) -> Death:
    failure = error_text.failure(file)
    return Death(
        failure=failure,
        cause=_cause_of_file(file, failure),
        said=error_text.headline(file, failure),
        detail=failure.traceback,
        recoverable=file.recoverable,
        pod=file.worker,
        at=file.at,
    )


def _cause_of_file(file: ErrorFile, failure: Failure) -> Cause:
    if file.system:
        # What Flyte's own code in the container calls hopeless is an input that does not convert.
        return Cause.INFRA if file.recoverable else Cause.CONFIG
    told = error_text.told_cause(file.message)
    if told is not None:
        return told
    cause = classify(failure)
    if cause is Cause.USER_ERROR and is_consequence(failure):
        return Cause.INFRA  # It only lost a peer, and of the peer nothing is known.
    return cause


def counting(files: Sequence[ErrorFile], pods: Sequence[Pod]) -> tuple[list[ErrorFile], list[ErrorFile]]:
    """The files that count for certain, and those whose workers live again and have not ended yet."""
    by_name = {pod.name: pod for pod in pods}
    certain: list[ErrorFile] = []
    unsettled: list[ErrorFile] = []
    for file in files:
        pod = by_name.get(file.worker)
        successors = [pod] if pod is not None else ([] if file.worker else list(pods))
        fates = {_fate(file, each) for each in successors}
        if not fates or None in fates:
            certain.append(file)
        elif "alive" in fates:
            unsettled.append(file)
    return certain, unsettled


# The kubelet tells of whole seconds, a worker of nanoseconds.
_SECOND: Final = timedelta(seconds=1)


def _fate(file: ErrorFile, pod: Pod) -> str | None:
    """What became of the worker after it wrote `file`: ``well``, ``alive`` or None, which is nothing good."""
    if pod.deleted is not None or not _lives_again(file, pod):
        return None
    ended = pod.primary.ended if pod.primary else None
    if pod.phase == "Succeeded" or (ended is not None and ended.exit_code == 0):
        return "well"
    return "alive" if ended is None and pod.phase in ("Pending", "Running") else None


def _lives_again(file: ErrorFile, pod: Pod) -> bool:
    """Whether the pod is, or runs, a later incarnation of the worker that wrote `file`."""
    container = pod.primary
    again = container is not None and (container.restarts > 0 or container.last is not None)
    began = pod.started or pod.created
    if container is not None:
        began = (container.ended.started if container.ended else container.running_since) or began
    if began is None or file.at is None:
        return again
    return began > file.at or (again and began > file.at - _SECOND)


def first(deaths: Sequence[Death]) -> Death | None:
    """The death that the others follow from; of equals the one with the lowest name."""
    if not deaths:
        return None
    in_order = sorted(deaths, key=lambda death: (error_text.order(death.failure.replica), death.said))
    cause = root_cause(death.failure for death in in_order)
    return next(death for death in in_order if death.failure is cause)


def told(pods: Sequence[Death], files: Sequence[Death]) -> list[Death]:
    """Every death once: what a worker wrote stands for the end of its pod."""
    writers = {death.pod for death in files}
    anonymous = "" in writers
    return [
        *files,
        *(
            death
            for death in pods
            # A plain error exit without a file has one all the same when a file does not say whose it is.
            if not (death.cause is Cause.USER_ERROR and (death.pod in writers or anonymous))
        ),
    ]
