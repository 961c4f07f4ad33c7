import asyncio
import gc
import platform
import subprocess
import sys

import pytest

from backend_plugin.shell import memory_tuning

PROGRAM = """
import ctypes
import sys

import psutil

from backend_plugin.shell.memory_tuning import limit_kept_memory

print(limit_kept_memory({each: "1" for each in sys.argv[1:]}))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]


def filled(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block


before = psutil.Process().memory_info().rss
libc.free(filled(30 * 2**20))
blocks = [(filled(2**20), libc.malloc(100_000)) for _ in range(64)]
for block, _ in blocks:
    libc.free(block)
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps memory in this way")
@pytest.mark.parametrize(("variables", "limited"), [((), True), (("MALLOC_ARENA_MAX",), False)])
def test_freed_memory_is_returned_unless_the_environment_configures_the_allocator(variables, limited) -> None:
    command = [sys.executable, "-c", PROGRAM, *variables]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert output[0] == str(limited)
    assert (int(output[1]) < 16 * 2**20) is limited


@pytest.fixture
def gc_as_before():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_objects_present_after_the_sync_are_frozen(gc_as_before):
    # The interpreter may have frozen objects itself; Python 3.12 freezes a few hundred.
    at_first = gc.get_freeze_count()
    filled = asyncio.Event()
    tuning = asyncio.create_task(memory_tuning.tune_collector(filled))
    await asyncio.sleep(0)
    (often, *_), frozen = gc.get_threshold(), gc.get_freeze_count()
    filled.set()
    await tuning
    # With a larger threshold, uncollected reference cycles would take too much memory.
    assert (700 < often < 100_000, gc.isenabled(), frozen) == (True, True, at_first)
    assert gc.get_freeze_count() > at_first + 1_000
