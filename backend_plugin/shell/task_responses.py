"""Encodes the status of a job as Flyte's `GetTaskResponse`, and reads the last log lines of its replicas."""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.execution_pb2 import TaskExecution, TaskLog

from backend_plugin.core.judging.log_links import LogLink
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.observed import Pod
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import Cluster, LogLine, LogRequest, build_pod_name
from backend_plugin.shell.judge import Judge

_PHASES: Final = {phase: TaskExecution.Phase.Value(phase.value) for phase in Phase}
_FORMATS: Final = dict(TaskLog.MessageFormat.items())
_MAX_LINES: Final = 1_000
_DEFAULT_LINES: Final = 100
_LINE_BYTES: Final = 64 * 2**10
_REPLICA_BYTES: Final = 512 * 2**10
_MAX_BYTES: Final = 8 * 2**20
"""The size limit for the log lines of all replicas in a GetTaskLogs call; `kfpytorch logs` has no limit."""


class CachedResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An encoded response: valid until the cached job has another `version`, or until the time `until`."""

    phase: Phase
    message: bytes
    version: int
    until: datetime


class TaskResponses:
    """Builds serialized `GetTaskResponse`s, and reuses the last one of a job until its phase may change."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge

    def get_response(self, entry: CachedJob) -> CachedResponse:
        """Return the `GetTaskResponse` for a job: the last one, unless the phase may have changed since."""
        if (known := self.find_cached(entry)) is not None:
            return known
        verdict, until = self.judge.judge_with_expiry(entry)
        answer = CachedResponse(
            phase=verdict.phase, message=encode_verdict(verdict), version=entry.version, until=until
        )
        entry.answer = answer
        return answer

    def find_cached(self, entry: CachedJob) -> CachedResponse | None:
        """Return the last response for a job if it is still valid, otherwise None."""
        known = entry.answer
        if known is None or known.version != entry.version or self.judge.now() > known.until:
            return None
        return known


def encode_verdict(verdict: Verdict) -> bytes:
    """Return a serialized `GetTaskResponse` with the phase, message and log links of a verdict."""
    resource = admin.Resource(
        phase=_PHASES[verdict.phase],
        message=verdict.message,
        log_links=[_build_link(link) for link in verdict.logs],
    )
    if verdict.info:
        resource.custom_info.update(verdict.info)
    written: bytes = admin.GetTaskResponse(resource=resource).SerializeToString()
    return written


NOT_SYNCED: Final = encode_verdict(
    Verdict(phase=Phase.QUEUED, reason="NotSynced", message="the server is searching for the job")
)
"""The response `QUEUED`, for a job that the server is still searching for."""


def _build_link(link: LogLink) -> TaskLog:
    return TaskLog(
        name=link.name,
        uri=link.uri,
        message_format=_FORMATS.get(link.message_format, 0),
        ShowWhilePending=link.show_while_pending,
        HideOnceFinished=link.hide_once_finished,
    )


async def read_last_lines(
    cluster: Cluster, namespace: str, pods: Sequence[Pod], lines: int
) -> AsyncIterator[Sequence[str]]:
    """Yield the last `lines` log lines of each replica, one batch per replica, up to a total size."""
    left = _MAX_BYTES
    tail = min(lines, _MAX_LINES) or _DEFAULT_LINES
    for pod in sorted(pods, key=lambda each: (each.role, each.index)):
        wanted = LogRequest(container=pod.trainer, tail=tail)
        batch = await _read_tail(pod.replica, cluster.read_log(build_pod_name(namespace, pod), wanted))
        left -= sum(map(len, batch))
        if left < 0:
            yield [f"{pod.replica}: this log and those after it are not shown, because they are too long"]
            return
        if batch:
            yield batch


async def _read_tail(replica: str, lines: AsyncIterator[LogLine]) -> Sequence[str]:
    tail: deque[str] = deque()
    size = 0
    async for line in lines:
        tail.append(f"{replica}: {line.text[:_LINE_BYTES]}")
        size += len(tail[-1])
        while size > _REPLICA_BYTES:
            size -= len(tail.popleft())
    return tail
