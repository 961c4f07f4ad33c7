"""Limits on the freed memory that the C library keeps, for a server that receives large requests.

By default glibc keeps freed memory in up to eight arenas per processor. After it has freed a large block, it
allocates later blocks of that size in an arena, too. The memory of large requests then stays in the process.

The functions have no effect with other C libraries than glibc, such as musl or that of macOS.
"""

import asyncio
import ctypes
from collections.abc import Mapping
from typing import Any, Final

TRIM_SECONDS: Final = 30.0
"""Interval between two calls that return free memory to the system."""

# The number of each parameter in malloc.h, and its value. glibc does not raise a threshold that has been set.
_PARAMETERS: Final = {
    "M_ARENA_MAX": (-8, 2),
    "M_MMAP_THRESHOLD": (-3, 256 * 2**10),
    "M_TRIM_THRESHOLD": (-1, 256 * 2**10),
}
_VARIABLES: Final = frozenset(
    {"GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}
)


def limit_kept_memory(environ: Mapping[str, str]) -> bool:
    """Limit the freed memory that glibc keeps; call this before threads are started.

    Returns:
        False if the C library is not glibc, or if an environment variable configures its allocator.
    """
    libc = _load_libc()
    if libc is None or _VARIABLES & environ.keys():
        return False
    for number, value in _PARAMETERS.values():
        libc.mallopt(number, value)
    return True


async def trim_regularly() -> None:
    """Return free memory to the system every `TRIM_SECONDS` until cancelled; return at once without glibc."""
    libc = _load_libc()
    while libc is not None:
        await asyncio.sleep(TRIM_SECONDS)
        # In a thread, because it takes several milliseconds after large requests.
        await asyncio.to_thread(libc.malloc_trim, 0)


def _load_libc() -> Any:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
