"""What goes on side by side until somebody ends it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*lives: Coroutine[Any, Any, object]) -> None:
    """Run all; when one of them ends or this is cancelled, end the others and wait until they have."""
    tasks = [asyncio.create_task(each) for each in lives]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ended:
        if isinstance(end, Exception):
            raise end
