"""Merges the log lines of several replicas into one stream, ordered by time."""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from backend_plugin.core import reading
from backend_plugin.shell.cluster import LogLine
from backend_plugin.shell.together import timeout

# Limits in lines and characters; a replica that writes faster than the client reads must wait.
_HELD: Final = 1_000
_HELD_SIZE: Final = 1 << 20
_LONGEST: Final = 1 << 18
_BATCH: Final = 500
_BATCH_SIZE: Final = 1 << 20


class ReplicaLine(NamedTuple):
    """A log line, and the name of the replica that wrote it."""

    replica: str
    line: LogLine


@dataclass(slots=True, eq=False)
class _ReplicaLog:
    replica: str
    lines: deque[LogLine] = field(default_factory=deque)
    size: int = 0
    room: asyncio.Event = field(default_factory=asyncio.Event)


class LogMerge:
    """Merges the logs of replicas by time. Each log keeps its own order, and logs can be added at any time.

    Args:
        line_timeout: Seconds to wait for the next line of each replica, because it may be earlier than the
            lines of other replicas. None: wait without limit, because all logs are complete.
    """

    def __init__(self, line_timeout: float | None) -> None:
        self._line_timeout = line_timeout
        self._pumps: dict[_ReplicaLog, asyncio.Task[None]] = {}
        self._awaited: set[_ReplicaLog] = set()
        self._heads: list[tuple[str, int, _ReplicaLog]] = []
        self._order = count()
        self._changed = asyncio.Event()
        self._complete = False

    def add_source(self, replica: str, lines: AsyncIterator[LogLine]) -> None:
        """Add the log of a replica."""
        source = _ReplicaLog(replica)
        self._awaited.add(source)
        self._pumps[source] = asyncio.create_task(self._pump_lines(source, lines))

    def mark_complete(self) -> None:
        """Declare that no further log will be added; `iter_batches` then ends once all logs have ended."""
        self._complete = True
        self._changed.set()

    async def iter_batches(self) -> AsyncGenerator[list[ReplicaLine], None]:
        """Yield the lines in batches, until `mark_complete` was called and all logs have ended.

        Raises:
            BackendError: If a log cannot be read.
        """
        try:
            while True:
                await self._wait_for_heads()
                if batch := self._take_batch():
                    yield batch
                    continue
                self._raise_failure()
                if not self._pumps and self._complete:
                    return
                # Do not await between the check above and this line, or a notification may be lost.
                self._changed.clear()
                await self._changed.wait()
        finally:
            for pump in self._pumps.values():
                pump.cancel()
            await asyncio.gather(*self._pumps.values(), return_exceptions=True)

    async def _wait_for_heads(self) -> None:
        if not self._awaited:
            return
        with suppress(asyncio.TimeoutError):
            async with timeout(self._line_timeout):
                while self._awaited:
                    self._raise_failure()
                    self._changed.clear()
                    await self._changed.wait()
                self._raise_failure()
        # A source that is silent now may stay silent, so the others do not wait for it again.
        self._awaited.clear()

    def _raise_failure(self) -> None:
        for source, pump in list(self._pumps.items()):
            if pump.done():
                del self._pumps[source]
                pump.result()

    def _take_batch(self) -> list[ReplicaLine]:
        batch: list[ReplicaLine] = []
        size = 0
        while self._heads and not self._awaited and len(batch) < _BATCH and size < _BATCH_SIZE:
            _, _, source = heapq.heappop(self._heads)
            line = self._take_line(source)
            batch.append(ReplicaLine(source.replica, line))
            size += len(line.text)
        return batch

    def _take_line(self, source: _ReplicaLog) -> LogLine:
        """Remove and return the first line of a replica's log, and add its next line to the merge.

        If the next line has not been read yet, the merge waits for it.
        """
        line = source.lines.popleft()
        source.size -= len(line.text)
        source.room.set()
        if source.lines:
            self._push_head(source)
        elif source in self._pumps and not self._pumps[source].done():
            self._awaited.add(source)
        return line

    def _push_head(self, source: _ReplicaLog) -> None:
        heapq.heappush(
            self._heads, (reading.format_sortable_time(source.lines[0].time), next(self._order), source)
        )

    async def _pump_lines(self, source: _ReplicaLog, lines: AsyncIterator[LogLine]) -> None:
        try:
            async for line in lines:
                for piece in _split_line(line):
                    await self._buffer_line(source, piece)
        finally:
            self._awaited.discard(source)
            self._changed.set()
            if isinstance(lines, AsyncGenerator):
                await lines.aclose()

    async def _buffer_line(self, source: _ReplicaLog, line: LogLine) -> None:
        source.lines.append(line)
        source.size += len(line.text)
        if len(source.lines) == 1:
            self._push_head(source)
            self._awaited.discard(source)
            self._changed.set()
        while len(source.lines) >= _HELD or source.size >= _HELD_SIZE:
            source.room.clear()
            await source.room.wait()


def _split_line(line: LogLine) -> Iterator[LogLine]:
    for begin in range(0, max(1, len(line.text)), _LONGEST):
        yield LogLine(time=line.time, text=line.text[begin : begin + _LONGEST])
