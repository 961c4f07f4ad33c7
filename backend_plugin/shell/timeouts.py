"""A time for what is awaited, without a task of its own for it, which `asyncio.wait_for` makes."""

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["timeout"]
