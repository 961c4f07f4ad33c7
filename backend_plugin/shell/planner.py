"""A thread for the work on large requests, so that the event loop answers others meanwhile."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

SMALL_BYTES: Final = 8 * 2**10
"""A request up to this size is planned in 20 ms at most, and an ordinary one in one."""


class Planner:
    """One thread: with several, the event loop would wait for each of them in turn.

    A call that ends while its work waits for the thread takes the work with it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of the work on a request of this size."""
        if size <= SMALL_BYTES:
            return work()
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, context.run, work)
