"""Marks a directory as a state directory with a marker file, and locks it for one server."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from backend_plugin.core.errors import BackendError
from backend_plugin.embedded.shim import files
from backend_plugin.shell import server_file

MARKER: Final = "kfpytorch-state"
"""The name of the marker file. In a directory without this file, no existing file is changed or removed."""
_TEXT: Final = b"The embedded cluster of kfpytorch keeps its state here, and removes what it has put here.\n"
_HARMLESS: Final = frozenset({"lost+found", "runs", "signing.keys"})
"""Names that a new state directory may contain: `lost+found` of a file system, logs of local runs, and the
key of a server with a Kubernetes cluster."""

USABLE: Final = (
    "check that this user may write there and that the disk has space, or use another state directory"
)
"""The advice in the error message about a state directory that cannot be used."""


class StateUnusable(BackendError):
    """The state directory cannot be used. The message contains the reason."""


def acquire_lock(directory: Path) -> TextIO:
    """Lock `directory` until the returned file is closed, or until the process ends.

    A new directory has mode 0700; the mode of an existing one does not change.

    Raises:
        StateUnusable: If another process holds the lock (the message contains the pid), if the directory
            cannot be created, or if it has no `MARKER`, but files of other programs.
    """
    try:
        file = _open_lock_file(directory)
    except OSError as error:
        raise StateUnusable(f"{error.filename or directory}: {error.strerror or error}; {USABLE}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise StateUnusable(
            f"{directory}: is in use by process {owner}; stop that server, or use another state directory"
        ) from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _open_lock_file(directory: Path) -> TextIO:
    if directory.is_file():
        raise StateUnusable(f"{directory}: is not a directory; use another state directory")
    # The directory contains the environment of tasks, which other users must not read.
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if why_not := find_foreign_files(directory):
        raise StateUnusable(f"{directory}: {why_not}")
    if not os.path.lexists(directory / MARKER):
        with os.fdopen(open_or_create(directory / MARKER), "wb") as marker:
            marker.write(_TEXT)
    return os.fdopen(open_or_create(directory / "lock"), "r+", encoding="ascii")


def find_holder(directory: Path) -> str:
    """Return the id of the process that holds the lock of a directory; empty if there is none."""
    with suppress(OSError), (directory / "lock").open(encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "unknown"
    return ""


def find_foreign_files(directory: Path) -> str:
    """Return an error message if a directory without `MARKER` has files of other programs; else empty."""
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return ""
    address = server_file.get_path(directory).name
    foreign = names - _HARMLESS - {address, f"{address}.new"}
    if MARKER in names or not foreign:
        return ""
    return (
        f"contains files that do not belong to an embedded cluster, such as {min(foreign)!r}; name a new or "
        f"empty directory (--state-dir), or create {directory / MARKER} to permit the use of this one"
    )


def open_or_create(path: Path) -> int:
    """Open or create a file of the state directory; see `files.open_regular`."""
    return files.open_regular(str(path), os.O_RDWR | os.O_CREAT)
