"""The process returns freed blocks to the system, although blocks between them are in use."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import sys

import psutil

from backend_plugin.shell.allocator import limit_kept_memory

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
def test_freed_memory_is_returned_unless_the_environment_configures_the_allocator(
    variables: tuple[str, ...], limited: bool
) -> None:
    command = [sys.executable, "-c", PROGRAM, *variables]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert output[0] == str(limited)
    assert (int(output[1]) < 16 * 2**20) is limited
