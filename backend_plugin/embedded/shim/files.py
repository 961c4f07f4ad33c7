"""Safe file operations in the directory of a pod, where the pod's processes may replace files.

Opening, replacing and removing never follow a symbolic link and never wait for a pipe.
"""

from __future__ import annotations

import errno
import os
import stat

REPLACED = frozenset(
    {errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ENOTDIR, errno.ENXIO}
)
"""The error numbers for a file that is missing, too large, or replaced by another kind of file."""


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor. A new file is only accessible to its owner.

    Raises:
        OSError: If the path is a link, pipe, directory or device, or if `os.open` raises it.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return fd


def read_regular(path: str, longest: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The path of the file.
        longest: The maximum size in bytes.

    Raises:
        OSError: If `open_regular` raises it, or if the file is larger than `longest`.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise OSError(errno.EFBIG, f"is larger than the limit of {longest} bytes", path)
    return data


def write_new(path: str, data: bytes) -> None:
    """Remove any file or directory at `path`, then write a new file there."""
    remove_tree(path)
    with os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)


def replace_file(path: str, data: bytes) -> None:
    """Replace a file atomically."""
    write_new(f"{path}.new", data)
    try:
        os.replace(f"{path}.new", path)  # noqa: PTH105 - a shim loads no pathlib.
    except IsADirectoryError:
        remove_tree(path)
        os.replace(f"{path}.new", path)  # noqa: PTH105


def remove_tree(path: str) -> None:
    """Remove a file, a link or a directory tree; follow no link. Files that cannot be removed remain."""
    path = path.rstrip("/")  # With a slash at its end, a path to a link would name the target.
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil  # A shim that removes no directory needs less memory without it.

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108
    except (OSError, RecursionError):  # The directory of another user, or hundreds of nested directories.
        return
