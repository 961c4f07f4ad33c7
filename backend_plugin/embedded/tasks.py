"""What is under way for an object: one thing after the other, of different objects at once."""

import asyncio
from collections.abc import Awaitable, Callable


class Tasks:
    """Runs coroutines in the order in which they were given, for each key its own line."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Task[None]] = {}

    def add(self, key: str, what: Callable[[], Awaitable[None]]) -> None:
        """Have it run when what was given for `key` before has ended, however it ended."""
        task = asyncio.get_running_loop().create_task(_after(self._last.get(key), what))
        self._last[key] = task
        task.add_done_callback(lambda ended: self._settle(key, ended))

    async def close(self) -> None:
        """Let everything end that has begun."""
        while self._last:
            await asyncio.wait(tuple(self._last.values()))

    def _settle(self, key: str, ended: "asyncio.Task[None]") -> None:
        if self._last.get(key) is ended:
            del self._last[key]


async def _after(before: "asyncio.Task[None] | None", what: Callable[[], Awaitable[None]]) -> None:
    if before is not None:
        await asyncio.wait((before,))
    await what()
