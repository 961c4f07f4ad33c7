"""A queue of coroutines for each key. Different keys run concurrently."""

import asyncio
from collections.abc import Awaitable, Callable


class KeyedTasks:
    """Runs the coroutines of each key in order."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Task[None]] = {}

    def add(self, key: str, what: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine after the previous one of `key` has ended, even if that one failed."""
        task = asyncio.get_running_loop().create_task(_run_after(self._last.get(key), what))
        self._last[key] = task
        task.add_done_callback(lambda ended: self._on_task_done(key, ended))

    async def close(self) -> None:
        """Wait for the end of all coroutines."""
        while self._last:
            await asyncio.wait(tuple(self._last.values()))

    def _on_task_done(self, key: str, ended: "asyncio.Task[None]") -> None:
        if self._last.get(key) is ended:
            del self._last[key]


async def _run_after(before: "asyncio.Task[None] | None", what: Callable[[], Awaitable[None]]) -> None:
    if before is not None:
        await asyncio.wait((before,))
    await what()
