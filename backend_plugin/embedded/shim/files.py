"""Files in a pod's directory, whatever the pod's own processes have put in their place.

Lives here: opening, replacing and removing without following a symbolic link or waiting for a pipe. Does
not: what is in the files.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

REPLACED = frozenset(
    {errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ENOTDIR, errno.ENXIO}
)
"""Errors of a file that is missing, is too large, or in whose place a program has put something else."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_ONLY = 0o700
_MOVED = ".kfpytorch-removed-"
_DEEPEST = 50
"""Directories that are open at the same time."""


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file; a new one is its owner's only.

    Raises:
        OSError: If there is a link, a pipe, a directory or a device, or as `os.open` does.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is no regular file", path)
    return fd


def read_regular(path: str, longest: int) -> bytes:
    """Return the content of a regular file, `longest` bytes at most.

    Raises:
        OSError: As `open_regular` does, or if the file is larger.
    """
    fd = open_regular(path)
    try:
        data = b""
        while len(data) <= longest and (more := os.read(fd, longest + 1 - len(data))):
            data += more
    finally:
        os.close(fd)
    if len(data) > longest:
        raise OSError(errno.EFBIG, f"is larger than the {longest} bytes that are read", path)
    return data


def write_new(path: str, data: bytes) -> None:
    """Write a file in place of whatever has that name."""
    remove_tree(path)
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Replace a file as a whole."""
    write_new(f"{path}.new", data)
    try:
        os.replace(f"{path}.new", path)  # noqa: PTH105 - a shim loads no pathlib.
    except IsADirectoryError:
        remove_tree(path)
        os.replace(f"{path}.new", path)  # noqa: PTH105


def remove_tree(path: str) -> None:
    """Remove a file, a link or a directory with all below it, as far as its permissions can be changed.

    No link is followed, also not one that takes the place of a directory meanwhile.
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    above = parent or ("/" if path.startswith("/") else ".")
    try:
        at = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not _removed(name, at):
            _remove_directory(name, at)
    finally:
        os.close(at)


def _removed(name: str, at: int) -> bool:
    """True if `name` was no directory, and is gone or cannot be removed."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=at)
    except OSError:
        pass
    return True


def _remove_directory(name: str, at: int) -> None:
    try:
        top = _opened(name, at)
    except OSError:
        return
    try:
        before: list[str] = []
        # Again while there is what was moved; what stays is another user's.
        while (left := sorted(os.listdir(top))) != before:  # noqa: PTH208
            before = left
            _clear(top, top, 0)
    finally:
        os.close(top)
    _rmdir(name, at)


def _clear(fd: int, top: int, depth: int) -> None:
    """Remove what a directory holds; what is nested too deeply is moved to the top, for the next time."""
    for name in os.listdir(fd):
        if _removed(name, fd):
            continue
        try:
            below = _opened(name, fd)
        except OSError:
            continue
        try:
            if depth < _DEEPEST:
                _clear(below, top, depth + 1)
            else:
                os.rename(name, f"{_MOVED}{os.urandom(8).hex()}", src_dir_fd=fd, dst_dir_fd=top)
        except OSError:
            continue
        finally:
            os.close(below)
        _rmdir(name, fd)


def _opened(name: str, at: int) -> int:
    _unprotect(name, at)
    return os.open(name, _DIRECTORY, dir_fd=at)


def _unprotect(name: str, at: int) -> None:
    """Let the owner change a directory, which a program may have forbidden."""
    if sys.platform != "linux":
        os.chmod(name, _OWNER_ONLY, dir_fd=at, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        if os.fstat(fd).st_mode & _OWNER_ONLY != _OWNER_ONLY:
            os.chmod(f"/proc/self/fd/{fd}", _OWNER_ONLY)  # noqa: PTH101 - by descriptor: no link is followed.
    except OSError:  # Another user's; it may be removable all the same.
        return
    finally:
        os.close(fd)


def _rmdir(name: str, at: int) -> None:
    try:
        os.rmdir(name, dir_fd=at)
    except OSError:  # Something in it could not be removed.
        return
