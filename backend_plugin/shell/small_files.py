"""Reading a file that somebody has named: one that has no end, or is none, is told of and not read.

Lives here: how much is read. Does not: what it means.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

LONGEST: Final = 16 * 2**20
"""Bytes; a list of all PodTemplates of a cluster has a few millions, and takes YAML a minute."""
LONGEST_SECRET: Final = 2**20
"""The same of a token or certificates: all authorities of a system have a quarter of it."""


def read(path: Path, longest: int = LONGEST) -> bytes:
    """All that is in a regular file; links to one are followed.

    Raises:
        OSError: If it cannot be read, is another thing than a file, or is larger.
    """
    # A pipe would be waited for when it is opened.
    at = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:  # What is a directory no file object would close.
        with os.fdopen(at, "rb", closefd=False) as file:
            if not stat.S_ISREG(os.fstat(at).st_mode):
                raise OSError(errno.EINVAL, "is no regular file", str(path))
            return all_of(file, longest)
    finally:
        os.close(at)


def all_of(source: BinaryIO, longest: int = LONGEST) -> bytes:
    """All that is yet to be read of something open, a pipe for example.

    Raises:
        OSError: If it is more.
    """
    data = source.read(longest + 1)
    if len(data) > longest:
        raise OSError(errno.EFBIG, f"is larger than the {longest:,} bytes that are read")
    return data
