"""Reads the container logs that `shim.logfile` writes: all lines, the last lines, or a stream."""

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import files, layout
from backend_plugin.embedded.shim.layout import format_log_name
from backend_plugin.embedded.shim.logfile import TEXT_AT
from backend_plugin.shell.cluster import LogLine, LogRequest

if TYPE_CHECKING:
    from backend_plugin.embedded.pod_directory import PodDirectory
    from backend_plugin.embedded.pod_record import PodRecord

_CHUNK: Final = 1 << 18
_TAG: Final = TEXT_AT - 2
_PART: Final = ord("P")
_TIME: Final = TEXT_AT - len(" stdout F ")
_NAME: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.log")
_LAST: Final = 10**9
_LINE: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z std(out|err) [FP] ")
"""Matches the beginning of a line that a shim wrote. Other lines come from a program that wrote to the log
file; they are returned unchanged."""
_MAX_PARTS: Final = 1 << 12
_Segment: TypeAlias = tuple[int, int]
"""The number of a container run, and the number of one file of the log of that run."""
_UNKNOWN: Final[_Segment] = (-1, 0)
_CLOSED: Final = -1


class ContainerLog:
    """Reads the log lines of a container, from the requested run of the container to the last one.

    A run is one start of the container, numbered from 0. Its log consists of numbered segment files.
    """

    def __init__(self, directory: Path, tail: int | None = None) -> None:
        self._directory = directory
        self._tail = tail
        self._at = _UNKNOWN
        self._file = _CLOSED
        self._rest = b""
        self._parts: list[bytes] = []
        self._time = "1970-01-01T00:00:00.000000000Z"

    def iter_batches(self, last: int | None) -> Iterator[Sequence[LogLine]]:
        """Yield the lines since the previous call, in batches, up to and including container run `last`.

        If `last` is None because the requested run has not started, yield nothing.
        """
        if last is None:
            return
        if self._at == _UNKNOWN:
            of_run = (each for each in self._list_segments() if each[0] == last)
            self._at = min(of_run, default=(last, 0))
        if self._tail is None:
            yield from self._iter_new_batches(last)
            return
        kept: deque[LogLine] = deque(maxlen=self._tail)
        for lines in self._iter_new_batches(last):
            kept.extend(lines)
            yield ()  # Let other tasks run.
        self._tail = None
        yield tuple(kept)

    def _iter_new_batches(self, last: int) -> Iterator[Sequence[LogLine]]:
        while self._open_segment(last):
            data = os.read(self._file, _CHUNK)
            later = () if data else self._list_later_segments(last)
            # Read again: lines may have been written before the next segment began.
            if later and not (data := os.read(self._file, _CHUNK)):
                yield from self._end_segment(later[0])
            elif data:
                yield self._parse_lines(data)
            else:
                return

    def close(self) -> None:
        """Close the file of the log segment that is being read, if one is open."""
        if self._file != _CLOSED:
            os.close(self._file)
            self._file = _CLOSED

    def _parse_lines(self, data: bytes) -> Sequence[LogLine]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        parsed = []
        for line in lines:
            is_of_shim = _LINE.match(line) is not None
            self._parts.append(line[TEXT_AT:] if is_of_shim else line)
            if is_of_shim:
                self._time = line[:_TIME].decode()
            is_part = is_of_shim and line[_TAG] == _PART
            if not is_part or len(self._parts) > _MAX_PARTS:
                text = b"".join(self._parts).decode(errors="replace")
                parsed.append(LogLine(time=self._time, text=text))
                self._parts = []
        return parsed

    def _end_segment(self, following: _Segment) -> Iterator[Sequence[LogLine]]:
        """Yield the incomplete last line, unless it may continue in `following`, the next segment to read."""
        if self._rest:
            yield self._parse_lines(b"\n")
        if self._parts and following[0] != self._at[0]:
            yield self._parse_lines(b"\n")
        self.close()
        self._at = following

    def _open_segment(self, last: int) -> bool:
        while self._file == _CLOSED:
            try:
                self._file = files.open_regular(str(self._directory / format_log_name(*self._at)))
            except OSError as error:
                if error.errno not in files.REPLACED:
                    raise
                # Since the last read, the shim has written more than it keeps, and deleted this segment.
                later = self._list_later_segments(last)
                if not later:
                    return False
                self._at = later[0]
        return True

    def _list_later_segments(self, last: int) -> Sequence[_Segment]:
        return [each for each in self._list_segments() if self._at < each <= (last, _LAST)]

    def _list_segments(self) -> Sequence[_Segment]:
        found = (_NAME.fullmatch(path.name) for path in self._directory.glob("*.log"))
        return sorted((int(each[1]), int(each[2])) for each in found if each)


async def read_lines(
    directory: "PodDirectory", pod: "PodRecord | None", request: LogRequest
) -> AsyncIterator[LogLine]:
    """Yield the requested log lines. `pod` is None if the pod does not run.

    If `request.follow` is true, continue until the container has ended and cannot restart.
    """
    log = ContainerLog(directory.path / layout.LOGS / request.container, request.tail)
    changed = asyncio.Event()
    try:
        while True:
            # Read the state before the lines: a run that has ended by now has written all its lines.
            state = directory.read_state()
            for lines in log.iter_batches(_find_run(state, request)):
                for line in lines:
                    yield line
                await asyncio.sleep(0)
            if pod is None or _is_complete(state, request) or not await pod.wait_for_change(changed):
                return
    finally:
        if pod is not None:
            pod.stop_waiting(changed)
        log.close()


def _find_run(state: PodState | None, request: LogRequest) -> int | None:
    container = state.containers.get(request.container) if state else None
    if container is None or not container.has_started:
        return None
    run = container.restarts - request.previous
    return run if run >= 0 else None


def _is_complete(state: PodState | None, request: LogRequest) -> bool:
    """True if all requested lines exist already, so that the reader need not wait for more."""
    if state is None:  # The pod has not started. `wait_for_change` returns if it is removed.
        return not request.follow
    container = state.containers.get(request.container)
    return not request.follow or request.previous or state.final or container is None or container.done
