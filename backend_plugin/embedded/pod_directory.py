"""A pod's directory on this machine, and the one shim that it can have.

Lives here: claiming, starting, finding again, removing. That no pod is started twice rests on two facts: a
shim holds the lock from before it exists, since it inherits it, until its end; and it writes a state before
its first process. So without a lock and without a state nothing ever ran. Does not: what is run.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

import backend_plugin
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.pod_status import PodState, decode
from backend_plugin.embedded.shim import files, layout

_PACKAGES: Final = Path(backend_plugin.__file__).parent.parent
# Neither the environment nor installed packages have a say in what a shim is.
_SHIM: Final = (
    f"import sys; sys.path.append({str(_PACKAGES)!r}); "
    "from backend_plugin.embedded.shim.main import main; main()"
)
_UID: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,62}")
# Sockets have short names: 104 characters on macOS, of which programs want about 40 for themselves.
_LONGEST_TMPDIR: Final = 60
_LONGEST_COMPLAINT: Final = 4096
_LONGEST_COMPLAINTS: Final = 1 << 24
_TEMPORARY: Final = "tmp"
_SHORT: Final = "/tmp"  # noqa: S108 - what is made there has a random name.


@dataclass(frozen=True, slots=True)
class Shim:
    """A shim and our end of its pipe."""

    process: "subprocess.Popen[bytes] | None"
    """None: another server has started it."""
    wake: int

    def kill(self, path: Path) -> None:
        """Kill the shim of the pod at `path`, and nobody who has its id by now."""
        if self.process is not None:
            self.process.kill()
            return
        import psutil  # Hardly ever needed, and dear to load.

        command = [_SHIM, str(path)]
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if _has(each.cmdline(), command):
                    each.kill()  # Which looks first whether it is still the same one.


@dataclass(frozen=True, slots=True)
class PodDirectory:
    """All the files of one pod."""

    path: Path

    @classmethod
    def of(cls, root: Path, uid: str) -> "PodDirectory":
        """That of the pod with this uid."""
        if not _UID.fullmatch(uid):
            raise ValueError(f"{uid!r} is no uid of a pod")
        return cls(root / uid)

    @classmethod
    def all(cls, root: Path) -> "Sequence[PodDirectory]":
        """Return those of all pods that there are or were; what has no marker is not among them."""
        found = [cls(path) for path in root.iterdir() if _UID.fullmatch(path.name)]
        return [each for each in found if each.is_ours]

    @property
    def is_ours(self) -> bool:
        """True if a server has made it for a pod, and it is no link."""
        if not _is(stat.S_ISDIR, self.path):
            return False
        # A release without a marker has left pipes.
        return _is(stat.S_ISREG, self.path / layout.MARKER) or _is(stat.S_ISFIFO, self.path / layout.WAKE)

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return self.path.is_dir()

    def temporary(self) -> str:
        """Its TMPDIR; made if it cannot be below the directory itself."""
        inside = self.path / _TEMPORARY
        if not inside.is_symlink() and len(str(inside)) > _LONGEST_TMPDIR:
            inside.symlink_to(tempfile.mkdtemp(prefix=self._temporary_prefix, dir=_SHORT))
        return str(inside.readlink() if inside.is_symlink() else inside)

    def make(self) -> None:
        """Make it, with its pipes; nothing happens to what is there."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / layout.MARKER).touch(mode=0o600)
        for name in (layout.WAKE, layout.CONTROL):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.path / name, 0o600)

    def write(self, launch: Manifest) -> None:
        """Write down what is to be run."""
        for directory in launch["directories"]:  # type: ignore[union-attr]
            Path(str(directory)).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / layout.LAUNCH).write_text(json.dumps(launch), encoding="utf-8")

    @contextlib.contextmanager
    def claim(self) -> Iterator[int | None]:
        """The lock, for as long as the context or whoever inherits it lives; None: somebody has it."""
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
        """Whether there is a shim."""
        with self.claim() as lock:
            return lock is None

    @property
    def is_lost(self) -> bool:
        """Whether its shim has died before its pod had ended, or has never been."""
        if self.is_alive:
            return False
        state = self.state()
        return state is None or not state.final

    def state(self) -> PodState | None:
        """What its shim has written last; None: there never was one."""
        try:
            return decode(files.read_regular(str(self.path / layout.STATE), layout.LONGEST_STATE))
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):  # Something has been started.
            return PodState(since=0, containers={})
        except OSError as error:
            if error.errno not in files.REPLACED:
                raise
            return PodState(since=0, containers={})  # A program has put something else in its place.

    def complaints(self) -> str:
        """What a shim wrote that broke: the end of it."""
        try:
            said = files.read_regular(str(self.path / layout.COMPLAINTS), _LONGEST_COMPLAINTS)
        except OSError:
            return ""
        return said.decode(errors="replace")[-_LONGEST_COMPLAINT:]

    def conclude(self, state: bytes) -> None:
        """Write what a shim could not any more."""
        files.replace(str(self.path / layout.STATE), state)

    def start(self, lock: int, lifeline: int) -> Shim:
        """Start the shim, which inherits the lock, and ends with the other end of `lifeline`; -1 for none."""
        with contextlib.ExitStack() as opened:
            # Open at both ends before the shim has even begun: their end is the shim's, no order is lost.
            pipes = [
                opened.enter_context(_both_ends(self.path / each)) for each in (layout.WAKE, layout.CONTROL)
            ]
            wake = self._wake()
            try:
                return Shim(process=self._spawn([*pipes, lifeline, lock]), wake=wake)
            except OSError:
                os.close(wake)
                raise

    def _spawn(self, fds: list[int]) -> "subprocess.Popen[bytes]":
        with (self.path / layout.COMPLAINTS).open("ab") as complaints:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _SHIM, str(self.path), *map(str, fds)],
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                cwd="/",
                pass_fds=[fd for fd in fds if fd >= 0],
                # Neither ^C in the server's terminal nor its hanging up is meant for pods.
                start_new_session=True,
            )

    def attach(self) -> Shim | None:
        """A shim that lives already; None: there is none."""
        wake = self._wake()
        # Looked at after opening: what dies later ends the pipe.
        if self.is_alive:
            return Shim(process=None, wake=wake)
        os.close(wake)
        return None

    def order(self, *words: str) -> bool:
        """Tell the shim; whether there is one."""
        try:
            fd = os.open(self.path / layout.CONTROL, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as wrong:
            if wrong.errno in (errno.ENXIO, errno.ENOENT, errno.ELOOP):
                return False
            raise
        try:
            os.write(fd, (" ".join(words) + "\n").encode())
        finally:
            os.close(fd)
        return True

    def has_unread_orders(self) -> bool:
        """Whether the shim has still to read what it was told: it is stopped, or waits for something."""
        try:
            with _both_ends(self.path / layout.CONTROL) as fd:
                unread = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
        except FileNotFoundError:  # It cannot even be told.
            return True
        return any(unread)

    def remove(self) -> None:
        """Remove all of it, as far as its processes' own permissions let us; no link is followed."""
        if not self.is_ours:
            return
        temporary = self.path / _TEMPORARY
        if temporary.is_symlink():
            target = temporary.readlink()
            # The link is the program's to change; only what was made for this pod is removed.
            if target.parent == Path(_SHORT) and target.name.startswith(self._temporary_prefix):
                files.remove_tree(str(target))
        files.remove_tree(str(self.path))

    @property
    def _temporary_prefix(self) -> str:
        return f"kfp-{hashlib.sha256(self.path.name.encode()).hexdigest()[:12]}-"

    def _wake(self) -> int:
        return _pipe(self.path / layout.WAKE, os.O_RDONLY)


@contextlib.contextmanager
def _both_ends(pipe: Path) -> Iterator[int]:
    fd = _pipe(pipe, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


def _pipe(path: Path, how: int) -> int:
    fd = os.open(path, how | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is no pipe any more", str(path))
    return fd


def _has(words: Sequence[str], part: Sequence[str]) -> bool:
    return any(list(words[at : at + len(part)]) == part for at in range(len(words)))


def _is(kind: Callable[[int], bool], path: Path) -> bool:
    try:
        return kind(path.lstat().st_mode)
    except OSError:
        return False
