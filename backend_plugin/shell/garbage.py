"""How often Python looks for garbage that refers to itself, of which a server makes next to none.

A server keeps records by the hundred thousand, and looking through them takes up to a quarter of the time of
a change. For the process as a whole: to be called by whoever owns it.
"""

import asyncio
import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)
"""New objects until the youngest are looked through, and how many times until those that are older are: what
waits so long for it is some megabytes. Python's own are 700, 10 and 10."""


async def look_seldom(filled: asyncio.Event) -> None:
    """From now on; what is there once it is `filled` is not looked through again."""
    gc.set_threshold(*_THRESHOLDS)
    await filled.wait()
    gc.collect()
    gc.freeze()
