"""Large requests of one author do not delay the responses to others."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import hostile_requests
import pytest
from serving import ready_server

SIZES = (240 * 2**10, 1_000_000)
"""One size below the limit of every part, and one that exceeds most limits."""
LONGEST_MS = 50
"""The limit for one iteration of the event loop, in CPU time of its thread to exclude other load."""


class Watchdog:
    """Measures the longest CPU time between two iterations of the event loop, by activity."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.current = ""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.002)
            now = time.thread_time()
            self.longest[self.current] = max(self.longest.get(self.current, 0), 1_000 * (now - before))
            before = now

    @property
    def slow(self) -> dict[str, int]:
        """The activities that exceeded the limit, in milliseconds."""
        return {what: int(longest) for what, longest in self.longest.items() if longest > LONGEST_MS}


@pytest.mark.parametrize("size", [SIZES[0], pytest.param(SIZES[1], marks=pytest.mark.soak)])
async def test_large_requests_do_not_block_the_event_loop(tmp_path: Path, size: int) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create(execution="f0")
        jobs = enumerate(hostile_requests.build_job_requests(size, meta))
        requests = [(name, "CreateTask", data) for name, data in hostile_requests.creations(size)]
        requests += [(f"{method} {number}", method, data) for number, (method, data) in jobs]
        watchdog, came_to = Watchdog(), {}
        async with watchdog.watching():
            for watchdog.current, method, data in requests:
                came_to[watchdog.current], _ = await hostile_requests.send(served.channel, method, data)
    print({each: round(longest) for each, longest in watchdog.longest.items()}, came_to)
    assert watchdog.slow == {}
    assert {*came_to.values()} <= {"OK", "INVALID_ARGUMENT"}
