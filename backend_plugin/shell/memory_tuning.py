"""Memory settings of the server's process: memory that the C library keeps, and garbage collection.

By default glibc keeps freed memory in up to eight arenas per processor. After it has freed a large block, it
allocates later blocks of that size in an arena, too. The memory of large requests then stays in the process.
With other C libraries, such as musl or that of macOS, nothing is set.

A server keeps hundreds of thousands of records and creates almost no reference cycles. With Python's default
thresholds, the scans of these records take up to a quarter of the time to process a change.
"""

import asyncio
import ctypes
import gc
from collections.abc import Mapping
from typing import Any, Final

TRIM_SECONDS: Final = 30.0
"""Seconds between two calls that return free memory to the system."""

# The number of each parameter in malloc.h, and its value. glibc does not raise a threshold that has been set.
# The thresholds exceed the 256 KiB that asyncio allocates for each read of a TLS connection. Otherwise each
# read would map and unmap this memory, which takes 33 µs instead of 5 µs for a change of a pod.
_PARAMETERS: Final = {
    "M_ARENA_MAX": (-8, 2),
    "M_MMAP_THRESHOLD": (-3, 512 * 2**10),
    "M_TRIM_THRESHOLD": (-1, 2**20),
}
_VARIABLES: Final = frozenset(
    {"GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}
)


def limit_kept_memory(environ: Mapping[str, str]) -> bool:
    """Limit the freed memory that glibc keeps; call this before threads are started.

    Returns:
        True if the limits are set. False if the C library is not glibc, or if an environment variable
        configures its allocator.
    """
    libc = _load_libc()
    if libc is None or _VARIABLES & environ.keys():
        return False
    for number, value in _PARAMETERS.values():
        libc.mallopt(number, value)
    return True


async def trim_regularly() -> None:
    """Return free memory to the system every `TRIM_SECONDS` until cancelled. Without glibc, do nothing."""
    libc = _load_libc()
    while libc is not None:
        await asyncio.sleep(TRIM_SECONDS)
        # In a thread, because it takes several milliseconds after large requests.
        await asyncio.to_thread(libc.malloc_trim, 0)


def _load_libc() -> Any:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None


_THRESHOLDS: Final = (50_000, 20, 100)
"""Collection thresholds of the three generations (Python's defaults are 700, 10 and 10). Uncollected cycles
take a few megabytes at most."""


async def tune_collector(filled: asyncio.Event) -> None:
    """Raise garbage collection thresholds; once the event `filled` is set, exclude all existing objects."""
    gc.set_threshold(*_THRESHOLDS)
    await filled.wait()
    gc.collect()
    gc.freeze()
