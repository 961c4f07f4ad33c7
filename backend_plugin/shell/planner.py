"""Parses large CreateTask requests and plans their jobs in a thread, beside the event loop."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from backend_plugin.core import schema_check

T = TypeVar("T")

SMALL_BYTES: Final = 8 * 2**10
"""Requests up to this size run in the event loop: they take 20 ms at most, and usually 1 ms."""


class Planner:
    """Parses large CreateTask requests and plans their jobs in a thread, while the event loop serves calls.

    It has only one thread, because each busy thread delays the event loop, which needs the GIL, too. If a
    call is cancelled before its work has started, the work does not run.
    """

    def __init__(self) -> None:
        schema_check.prepare_types()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of `work` for a request of `size` bytes.

        Above `SMALL_BYTES`, `work` runs in the planner's thread, so that it does not block the event loop.
        """
        if size <= SMALL_BYTES:
            return work()
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, context.run, work)
