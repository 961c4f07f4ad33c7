"""Safe file operations in the directory of a pod, where the pod's processes may replace files.

Opening, replacing and removing never follow a symbolic link and never wait for a pipe.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

REPLACED = frozenset(
    {errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ENOTDIR, errno.ENXIO}
)
"""The errors for a file that is missing, too large, or replaced by another kind of file."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_ONLY = 0o700
_MOVED = ".kfpytorch-removed-"
_DEEPEST = 50
"""The maximum depth of recursion, because Python and the limit of open files restrict it."""


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor. A new file is only accessible to its owner.

    Raises:
        OSError: If the path is a link, pipe, directory or device, or as `os.open` does.
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
        raise OSError(errno.EFBIG, f"is larger than the limit of {longest} bytes", path)
    return data


def write_new(path: str, data: bytes) -> None:
    """Remove any file or directory at `path`, then write a new file there."""
    remove_tree(path)
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def replace_file(path: str, data: bytes) -> None:
    """Replace a file atomically."""
    write_new(f"{path}.new", data)
    try:
        os.replace(f"{path}.new", path)  # noqa: PTH105 - a shim loads no pathlib.
    except IsADirectoryError:
        remove_tree(path)
        os.replace(f"{path}.new", path)  # noqa: PTH105


def remove_tree(path: str) -> None:
    """Remove a file, a link or a directory tree, as far as permissions can be changed.

    Links are not followed, even if one replaces a directory during the removal.
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    above = parent or ("/" if path.startswith("/") else ".")
    try:
        at = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not _remove_entry(name, at):
            _remove_directory(name, at)
    finally:
        os.close(at)


def _remove_entry(name: str, at: int) -> bool:
    """Remove the file or empty directory `name` in the directory `at`, if possible.

    Return False only if it is a directory that could not be removed. For a file, always return True.
    """
    is_directory = False
    try:
        is_directory = stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
        remove = os.rmdir if is_directory else os.unlink
        remove(name, dir_fd=at)
    except OSError:
        return not is_directory
    return True


def _remove_directory(name: str, at: int) -> None:
    try:
        top = _open_directory(name, at)
    except OSError:
        return
    try:
        while _clear_directory(top, top, 0):
            pass
    except OSError:  # Too many open files.
        return
    finally:
        os.close(top)
    _remove_entry(name, at)


def _clear_directory(fd: int, top: int, depth: int) -> bool:
    """Remove the content of a directory at this depth below `top`. Move too deep directories to `top`.

    Return True if a directory was moved, which the next call removes.
    """
    is_moved = False
    for name in os.listdir(fd):
        if _remove_entry(name, fd):
            continue
        try:
            below = _open_directory(name, fd)
        except OSError:
            continue
        try:
            if depth < _DEEPEST:
                is_moved = _clear_directory(below, top, depth + 1) or is_moved
            else:
                os.rename(name, f"{_MOVED}{os.urandom(8).hex()}", src_dir_fd=fd, dst_dir_fd=top)
                is_moved = True
        except OSError:  # The directory belongs to another user, or it is a mount.
            continue
        finally:
            os.close(below)
        _remove_entry(name, fd)
    return is_moved


def _open_directory(name: str, at: int) -> int:
    _unprotect(name, at)
    return os.open(name, _DIRECTORY, dir_fd=at)


def _unprotect(name: str, at: int) -> None:
    """Give the owner full access (mode 0700) to a directory whose mode a program has restricted."""
    if sys.platform != "linux":
        os.chmod(name, _OWNER_ONLY, dir_fd=at, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        if os.fstat(fd).st_mode & _OWNER_ONLY != _OWNER_ONLY:
            os.chmod(f"/proc/self/fd/{fd}", _OWNER_ONLY)  # noqa: PTH101 - a descriptor follows no link.
    except OSError:  # The directory of another user may be removable nevertheless.
        return
    finally:
        os.close(fd)
