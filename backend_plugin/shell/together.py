"""Functions that run coroutines concurrently, cancel tasks reliably, and limit the time of a block."""

import asyncio
import sys
from collections.abc import Collection, Coroutine
from typing import Any, Final

# Unlike `asyncio.wait_for`, this context manager does not create a task.
if sys.version_info >= (3, 11):
    from asyncio import timeout as timeout
else:
    from async_timeout import timeout as timeout

_CANCEL_INTERVAL: Final = 1.0
"""Seconds that a task may take to clean up before it is cancelled again."""


async def run_until_first_exit(*lives: Coroutine[Any, Any, object]) -> None:
    """Run all coroutines; when one ends or this call is cancelled, cancel the others and wait for them.

    If a coroutine failed, raise its exception.
    """
    tasks = [asyncio.create_task(each) for each in lives]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(tasks)
    for each in tasks:
        if not each.cancelled() and (error := each.exception()) is not None:
            raise error


async def cancel_and_wait(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel tasks repeatedly until all of them have ended.

    Before Python 3.12 one cancellation is not enough: `asyncio.wait_for` swallows a cancellation that arrives
    when the awaited future has just completed. A cancellation of this call is raised after the tasks ended.
    """
    interrupted: asyncio.CancelledError | None = None
    left = {each for each in tasks if not each.done()}
    while left:
        for each in left:
            each.cancel()
        try:
            await asyncio.wait(left, timeout=_CANCEL_INTERVAL)
        except asyncio.CancelledError as again:
            interrupted = again
        left = {each for each in left if not each.done()}
    if interrupted is not None:
        raise interrupted
