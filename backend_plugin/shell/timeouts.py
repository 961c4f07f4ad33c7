"""A timeout context manager that, unlike `asyncio.wait_for`, does not create a task."""

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["timeout"]
