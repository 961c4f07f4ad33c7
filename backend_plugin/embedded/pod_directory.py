"""The directory of a pod on this machine.

A pod is never started twice. Its shim, the process that runs its containers, inherits the lock of the
directory and holds it until the shim ends. The shim writes a state file before it starts the first process.
If the lock is free and there is no state file, no process of the pod has run.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import files, layout

# Socket paths are limited to 104 characters on macOS, and programs need about 40 of them.
_LONGEST_TMPDIR: Final = 60
_LONGEST_COMPLAINT: Final = 4096
_LONGEST_COMPLAINTS: Final = 1 << 24
_TEMPORARY: Final = "tmp"
_SHORT: Final = "/tmp"  # noqa: S108 - names in it are random.


@dataclass(frozen=True, slots=True)
class PodDirectory:
    """The directory with all files of one pod. Its name is the uid of the pod."""

    path: Path

    @classmethod
    def list_all(cls, root: Path) -> "Sequence[PodDirectory]":
        """Return the directories of all current and former pods, identified by their marker files."""
        return [each for each in map(cls, root.iterdir()) if each.is_ours]

    @property
    def is_ours(self) -> bool:
        """True if the directory contains the marker file of a pod and is not a link."""
        # A pod may have made its directory inaccessible, for which the methods of `Path` raise an error.
        return not os.path.islink(self.path) and os.path.isfile(self.path / layout.MARKER)  # noqa: PTH113, PTH114

    def ensure_tmpdir(self) -> str:
        """Return the path of the pod's TMPDIR: below this directory, or in /tmp if that path is too long."""
        inside = self.path / _TEMPORARY
        if not inside.is_symlink() and len(str(inside)) > _LONGEST_TMPDIR:
            inside.symlink_to(tempfile.mkdtemp(prefix=self._temporary_prefix, dir=_SHORT))
        return str(inside.readlink() if inside.is_symlink() else inside)

    def create(self) -> None:
        """Create the directory, its pipes, and the marker file of a pod directory, unless they exist."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / layout.MARKER).touch(mode=0o600)
        for name in (layout.WAKE, layout.CONTROL):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.path / name, 0o600)

    def write_launch(self, launch: Manifest) -> None:
        """Write the configuration file of the shim, and create the directories that the file lists."""
        for directory in launch["directories"]:  # type: ignore[union-attr]
            Path(str(directory)).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / layout.LAUNCH).write_text(json.dumps(launch), encoding="utf-8")

    @contextlib.contextmanager
    def acquire_lock(self) -> Iterator[int | None]:
        """Lock the directory until the context and all processes that inherit the descriptor have ended.

        Yields:
            The descriptor of the lock, or None if another process holds the lock.
        """
        fd = os.open(self.path / layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
            else:
                yield fd
        finally:
            os.close(fd)

    @property
    def is_alive(self) -> bool:
        """True if the shim of the pod is running."""
        with self.acquire_lock() as lock:
            return lock is None

    @property
    def is_lost(self) -> bool:
        """True if the shim has ended without a final state, so that processes of the pod may remain."""
        if self.is_alive:
            return False
        state = self.read_state()
        return state is None or not state.final

    def read_state(self) -> PodState | None:
        """Return the last state that the shim wrote; None if there is no state file.

        If a program damaged or replaced the state file, return a state without containers.
        """
        try:
            data = files.read_regular(str(self.path / layout.STATE), layout.LONGEST_STATE)
            return msgspec.json.decode(data, type=PodState)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in files.REPLACED:
                raise
            return PodState(since=0, containers={})  # A process may have started, and replaced the file.

    def read_error_output(self) -> str:
        """Return the end of the error output of the shim; empty if it cannot be read."""
        try:
            output = files.read_regular(str(self.path / layout.COMPLAINTS), _LONGEST_COMPLAINTS)
        except OSError:
            return ""
        return output.decode(errors="replace")[-_LONGEST_COMPLAINT:]

    def send_command(self, *words: str) -> None:
        """Send a command, such as `layout.TERMINATE`, and its argument to the shim.

        Raises:
            OSError: If no shim reads the pipe, or if the pipe cannot be opened.
        """
        fd = os.open(self.path / layout.CONTROL, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(fd, "wb", buffering=0) as pipe:
            pipe.write((" ".join(words) + "\n").encode())

    def remove(self) -> None:
        """Remove the directory as far as file permissions allow. Symbolic links are not followed."""
        if not self.is_ours:
            return
        temporary = self.path / _TEMPORARY
        if temporary.is_symlink():
            target = temporary.readlink()
            # A program can change the link: remove the target only if it was created for this pod.
            if target.parent == Path(_SHORT) and target.name.startswith(self._temporary_prefix):
                files.remove_tree(str(target))
        files.remove_tree(str(self.path))

    @property
    def _temporary_prefix(self) -> str:
        return f"kfp-{hashlib.sha256(self.path.name.encode()).hexdigest()[:12]}-"
