"""Reads files that a user has named, up to a size limit; endless and special files are rejected."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

LONGEST: Final = 16 * 2**20
"""The default size limit of a file in bytes. A file with all PodTemplates of a cluster has a few megabytes,
and to parse it as YAML takes a minute."""
LONGEST_SECRET: Final = 2**20
"""The size limit of token and certificate files in bytes; a system's CA bundle has a quarter of this size."""


def read_file(path: Path, longest: int = LONGEST) -> bytes:
    """Return the content of a regular file; symbolic links are followed.

    Raises:
        OSError: If the file cannot be read, is not a regular file, or is larger than `longest` bytes.
    """
    # Without O_NONBLOCK, opening a pipe blocks until a writer opens it.
    at = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:  # os.fdopen does not close the descriptor of a directory.
        with os.fdopen(at, "rb", closefd=False) as file:
            if not stat.S_ISREG(os.fstat(at).st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", str(path))
            return read_all(file, longest)
    finally:
        os.close(at)


def read_all(source: BinaryIO, longest: int = LONGEST) -> bytes:
    """Return the remaining content of an open file or pipe.

    Raises:
        OSError: If the content is longer than `longest` bytes.
    """
    data = source.read(longest + 1)
    if len(data) > longest:
        raise OSError(errno.EFBIG, f"is larger than the limit of {longest:,} bytes")
    return data


def read_file_state(file: Path) -> tuple[int, int, int] | None:
    """Return the modification time, size and inode of a file; None if it is missing or inaccessible.

    Callers compare two results to detect that the file has changed.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
