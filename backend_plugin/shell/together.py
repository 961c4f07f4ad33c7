"""What goes on side by side until somebody ends it."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Final

_AGAIN: Final = 1.0
"""Seconds that a task may take to leave things in order before it is told again."""


async def together(*lives: Coroutine[Any, Any, object]) -> None:
    """Run all; when one of them ends or this is cancelled, end the others and wait until they have."""
    tasks = [asyncio.create_task(each) for each in lives]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
    for each in tasks:
        if not each.cancelled() and (error := each.exception()) is not None:
            raise error


async def end(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel tasks until they have ended.

    Before Python 3.12 once is not enough: `asyncio.wait_for` keeps a cancellation to itself that comes when
    what it waited for has just come about.
    """
    left = {each for each in tasks if not each.done()}
    while left:
        for each in left:
            each.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN)
