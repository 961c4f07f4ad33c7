"""Which of many bad ends the others follow from: pods, error files, and what the operator told of pods gone.

Lives here: which of them count, and their order. Does not: what Kubernetes says of a pod, and what Flyte
makes of it all.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from signal import SIGABRT, SIGKILL, SIGTERM
from typing import Final

from msgspec import structs

from backend_plugin.core import deaths, error_text
from backend_plugin.core.deaths import SKEW, Death
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.observed import Event, Job, Pod
from kfpytorch_common.causes import Cause, Failure, classify, is_consequence

# How long before the end of the job what an event tells of may have been its cause: the peers of a lost node
# take their time to notice, and a container that is restarted in place has its pauses.
_RECENT: Final[Mapping[str, timedelta]] = {
    "ExitedWithCode": timedelta(minutes=1),
    "Preempted": timedelta(minutes=1),
    "Evicted": timedelta(minutes=1),
    "": timedelta(minutes=10),
}


def of_events(
    events: Iterable[Event], pods: Iterable[Pod], ended: datetime | None, exit_codes: Mapping[int, Cause]
) -> list[Death]:
    """How pods ended that are gone, or of which no end is known yet, by the events; of each the last end."""
    known = {pod.name: pod for pod in pods}
    last: dict[str, Death] = {}
    for event in events:
        death = _of_event(event, exit_codes)
        if death is None or not (_is_recent(event, ended) and _is_news(event, known.get(death.pod))):
            continue
        other = last.get(death.pod)
        if other is None or _later(other, death):
            last[death.pod] = death
    return list(last.values())


def _later(one: Death, other: Death) -> bool:
    return (other.failure.time_ns, other.said) > (one.failure.time_ns, one.said)


def _is_news(event: Event, pod: Pod | None) -> bool:
    """Whether it tells of an end that the pod itself, as it was seen last, does not tell of."""
    if pod is None:
        return True
    if event.reason != "ExitedWithCode" or not deaths.still_runs(pod):
        return False
    began = (pod.primary.running_since if pod.primary else None) or pod.started or pod.created
    # One that was started anew may be that of which it tells.
    again = pod.primary is not None and pod.primary.restarts > 0
    return not again and began is not None and event.at is not None and event.at > began


def _is_recent(event: Event, ended: datetime | None) -> bool:
    if event.at is None or ended is None:
        return True
    return ended - event.at <= _RECENT.get(event.reason, _RECENT[""])


def _of_event(event: Event, exit_codes: Mapping[int, Cause]) -> Death | None:
    if event.kind == "Pod":
        return _taken(event)
    pod, code = error_text.exited(event.message)
    if not code:
        return None
    # The operator writes 0xbeef where it has found no exit code.
    cause = Cause.INFRA if code == 0xBEEF else None
    cause = cause or deaths.CONTAINER_REASONS.get(event.reason) or deaths.cause_of_exit(code, exit_codes)
    stopped = deaths.signal_of(code) == SIGTERM
    failure = replace(deaths.silent(error_text.replica(pod), code, event.at), stopped=stopped)
    name = failure.signal
    said = f"killed by {name} (exit code {code})" if name else f"exit code {code}"
    what = f"{event.reason}, " if event.reason in deaths.CONTAINER_REASONS else ""
    return Death(failure=failure, cause=cause, said=f"{what}{said}", pod=pod, at=event.at, ordered=True)


_TAKEN: Final[Mapping[str, Cause]] = {
    "Preempted": Cause.PREEMPTED,
    "Evicted": Cause.INFRA,
    "TaintManagerEviction": Cause.NODE_LOST,
    "NodeNotReady": Cause.NODE_LOST,
}
"""What a scheduler, a kubelet or a node controller says of a pod that it takes away."""


def _taken(event: Event) -> Death | None:
    cause = _TAKEN.get(event.reason)
    if cause is None or event.message.startswith("Cancelling deletion"):
        return None
    return Death(
        failure=deaths.silent(error_text.replica(event.name), 0, event.at),
        cause=cause,
        said=f"{event.reason}: {event.message}" if event.message else event.reason,
        pod=event.name,
        at=event.at,
        ordered=True,
        explained=True,
    )


def of_files(files: Iterable[ErrorFile], pods: Iterable[Pod], exit_codes: Mapping[int, Cause]) -> list[Death]:
    """The failures that workers wrote down themselves."""
    going = {name: pod.deleted for pod in pods if pod.deleted for name in (pod.replica, pod.name)}
    return [_of_file(each, going.get(each.worker), exit_codes) for each in files]


def _of_file(file: ErrorFile, deleted: datetime | None, exit_codes: Mapping[int, Cause]) -> Death:
    failure = error_text.failure(file)
    cause = _cause_of_file(file, failure, exit_codes)
    return Death(
        failure=failure,
        cause=cause,
        said=error_text.headline(file, failure),
        detail=failure.traceback,
        recoverable=file.recoverable,
        pod=file.worker,
        at=file.at,
        ordered=deleted is not None and (file.at is None or file.at >= deleted),
        explained=not failure.exception and cause is not Cause.USER_ERROR,
    )


def _cause_of_file(file: ErrorFile, failure: Failure, exit_codes: Mapping[int, Cause]) -> Cause:
    if file.system:
        # What Flyte's own code in the container calls hopeless is an input that does not convert.
        return Cause.INFRA if file.recoverable else Cause.CONFIG
    # A process that ended without a word, told of by its agent.
    code = failure.exit_code if failure.exit_code >= 0 else 128 - failure.exit_code
    if not failure.exception and code in exit_codes:
        return exit_codes[code]
    told = error_text.told_cause(file)
    if told is not None:
        return told
    cause = classify(failure)
    if cause is Cause.USER_ERROR and is_consequence(failure):
        return Cause.INFRA  # It only lost a peer, and of the peer nothing is known.
    return cause


def counting(files: Sequence[ErrorFile], pods: Sequence[Pod]) -> tuple[list[ErrorFile], list[ErrorFile]]:
    """The files that count for certain, and those whose workers live again and have not ended yet."""
    by_name = {name: pod for pod in pods for name in (pod.replica, pod.name)}
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


def is_over(file: ErrorFile, pods: Sequence[Pod]) -> bool:
    """Whether the file's worker has been started again since, however that went."""
    writers = (pod for pod in pods if file.worker in ("", pod.name, pod.replica))
    return file.at is not None and any(_lives_again(file, pod) for pod in writers)


def surely_well(file: ErrorFile, job: Job, ended: datetime | None) -> bool:
    """Whether a success, of a job whose failing replicas are started anew, is that of the file's worker.

    Asked of a worker whose pod is gone: either everything is cleaned up, or its end was needed.
    """
    role = error_text.replica(file.worker).partition("-")[0]
    masters = any(group.role == "master" for group in job.groups)
    needed = role == "master" or not (masters or job.elastic)
    restarts = any(group.restarts and group.role == role for group in job.groups)
    if not restarts or not (needed or job.clean_pod_policy == "All"):
        return False
    return ended is not None and file.at is not None and ended - file.at > _ANEW


# The least that a container takes to be started anew and to do something.
_ANEW: Final = timedelta(seconds=5)


# The kubelet tells of whole seconds, a worker of nanoseconds.
_SECOND: Final = timedelta(seconds=1)


def _fate(file: ErrorFile, pod: Pod) -> str | None:
    """What became of the worker after it wrote `file`: ``well``, ``alive`` or None, which is nothing good."""
    if not _lives_again(file, pod):
        return None
    ended = pod.primary.ended if pod.primary else None
    if pod.deleted is not None:
        # Whoever ends with zero because he is told to has not done his work.
        by_itself = ended is not None and ended.finished is not None and ended.finished <= pod.deleted
        return "well" if by_itself and pod.phase == "Succeeded" else None
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
    return began > file.at or (again and began - file.at > -_SECOND)


# The kubelet may tell of an end only when the peers have long noticed.
_NOTICED: Final = 10 * 10**9
_WHOLE_SECOND: Final = 10**9
# Of ends within one second, those that are likelier to have followed.
_DOUBTFUL: Final = {-SIGTERM: 1, -SIGABRT: 2}


# What a process says that was told to end itself, or one of whose own was.
_BY_SIGTERM: Final = re.compile(r"SignalException|got signal: 15|killed by signal: Terminated|SIGTERM")


def first(told: Sequence[Death], ended: datetime | None) -> Death | None:
    """The death that the others follow from; of equals the one with the lowest name.

    Consequences come last, then those who were told to end, and what happened after the job had `ended`. But
    somebody was first: where nothing until the end is a cause, what is one by its nature was that, though a
    node's clock, which is ahead, says that it came later.
    """
    worded = any(death.failure.exception and not is_consequence(death.failure) for death in told)
    caused = any(is_cause(death) and not _is_late(death, ended) for death in told)

    def order(death: Death) -> tuple[int, int, int, tuple[str, int], str]:
        late = _is_late(death, ended) and (caused or not _may_be_early(death))
        return _order(death, late=late, worded=worded)

    return min(told, key=order, default=None)


def has_cause(told: Iterable[Death], ended: datetime | None) -> bool:
    """Whether any of them may have brought about the others, and the end of the job."""
    return any(_may_be_early(each) if _is_late(each, ended) else is_cause(each) for each in told)


def _is_late(death: Death, ended: datetime | None) -> bool:
    return ended is not None and death.at is not None and death.at - ended > SKEW


def is_cause(death: Death) -> bool:
    """Whether it tells of its own cause: no lost peer, nor what comes of being told to end."""
    failure = death.failure
    follows = failure.stopped or failure.exit_code in _DOUBTFUL or is_consequence(failure)
    return not follows and _BY_SIGTERM.search(f"{failure.exception}: {failure.message}") is None


def _may_be_early(death: Death) -> bool:
    """Whether what is dated after the end may be its cause: not where somebody had ordered its pod away."""
    return is_cause(death) and (death.explained or not death.ordered)


def _order(death: Death, *, late: bool, worded: bool) -> tuple[int, int, int, tuple[str, int], str]:
    failure, when = death.failure, death.failure.time_ns
    sigterm = failure.stopped and failure.exit_code == -SIGTERM and not worded
    if late:
        rank = 4
    elif failure.stopped and not (sigterm and not death.ordered):
        rank = 3
    else:
        rank = 2 if is_consequence(failure) else 1
    if death.explained:
        when = 0 if death.at is None else when - _NOTICED
    elif not failure.exception and failure.exit_code != -SIGKILL:
        when += _WHOLE_SECOND  # When in its second it was is not known.
    return rank, when, _DOUBTFUL.get(failure.exit_code, 0), error_text.order(failure.replica), death.said


def with_early_exits(death: Death | None, pods: Sequence[Pod], total: int) -> Death | None:
    """Return `death` with the pods that had ended with exit code 0 when it lost them.

    If they are all its peers, no other end explains it: the ranks do not call the same collectives.

    Args:
        death: The failure that the job is about.
        pods: The pods of the job.
        total: The number of replicas.
    """
    if death is None or death.at is None or not is_consequence(death.failure):
        return death
    early = [pod.replica for pod in pods if pod.replica != death.failure.replica and _left(pod, death.at)]
    if not early:
        return death
    who = ", ".join(sorted(early, key=error_text.order))
    if len(early) < total - 1:
        return structs.replace(death, said=f"{death.said} ({who} had ended with exit code 0)")
    said = f"{who} ended with exit code 0 before it, and it waited for {'it' if len(early) == 1 else 'them'}"
    failure = replace(death.failure, exception="EarlyExit", message=f"{said}\n{death.said}")
    return structs.replace(death, failure=failure, cause=Cause.USER_ERROR, said=said)


def _left(pod: Pod, at: datetime) -> bool:
    """True if the pod had ended with exit code 0, and nobody had told it to."""
    ended = pod.primary.ended if pod.primary is not None and pod.deleted is None else None
    return ended is not None and ended.exit_code == 0 and ended.finished is not None and ended.finished <= at


def near(files: Sequence[ErrorFile], ends: Sequence[Death]) -> list[ErrorFile]:
    """The files that may be of `ends`; all where there are none."""
    since = min((death.at for death in ends if death.at is not None), default=None)
    return [file for file in files if since is None or file.at is None or file.at - since >= -_WRITTEN]


def told(pods: Sequence[Death], files: Sequence[Death]) -> list[Death]:
    """Every death once: where a worker wrote an error file, the file stands for the end of its pod."""
    writers = {death.failure.replica for death in files}
    silent = [
        death for death in pods if death.cause is Cause.USER_ERROR and death.failure.replica not in writers
    ]
    rest = [death for death in pods if death.cause is not Cause.USER_ERROR]
    found: list[Death] = []
    for file in sorted(files, key=lambda death: (death.failure.time_ns, death.said)):
        if file.failure.replica:
            found.append(file)
            continue
        after = [death for death in silent if _may_have_written(death, file)]
        # A file that does not say whose it is may be that of any replica that has none.
        whose = min(after, key=lambda death: _order(death, late=False, worded=True), default=None)
        silent = [death for death in silent if death is not whose]
        found.append(_named(file, after[0].failure.replica) if len(after) == 1 else file)
    return [*found, *silent, *rest]


# How long a process may take to end after it has written its error.
_WRITTEN: Final = timedelta(minutes=1)


def _may_have_written(death: Death, file: Death) -> bool:
    if death.at is None or file.at is None:
        return True
    return -_SECOND <= death.at - file.at <= _WRITTEN


def _named(file: Death, replica: str) -> Death:
    return structs.replace(file, failure=replace(file.failure, replica=replica))
