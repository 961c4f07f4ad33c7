"""Programs of a cluster while they run: their logs, whether they are ready, and that they end when we do."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from rig.place import LOOPBACK, Place

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_FIRST_TICK: Final = 0.02
_LONGEST_TICK: Final = 0.25
_SLOWER: Final = 1.3
"""Between two looks: who waits for long looks seldom, for each look costs those who are waited for."""
_TAIL: Final = 4_000
# The kernel does it in no time, but may have others to see to before.
_BURIAL: Final = 60


class NotReady(AssertionError):
    """A program has ended, or was not ready in time; what it wrote last stands in the message."""


class Process:
    """One program; a context that ends it.

    The kernel kills it with the thread that started it, so it is to be started from one that lasts.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        grace: float = 5,
        place: Place = LOOPBACK,
    ) -> None:
        self.command = [str(word) for word in command]
        self.log = log
        self._environment = None if environment is None else dict(environment)
        self._directory = directory
        self._grace = grace
        self.place = place
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Process":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def pid(self) -> int:
        """Of what we started; in a place apart, the program is its child and in its group."""
        assert self._running is not None, f"{self.name} was not started"
        return self._running.pid

    @property
    def runs(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def start(self) -> None:
        """Start it, once more if it has ended; its log goes on."""
        assert not self.runs, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self.place.command(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._directory,
                # ^C is for who tests; the signal at our end for those that outlive us otherwise.
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - nothing but a system call.
            )

    def stop(self) -> None:
        """Ask it to end, and make it after a while."""
        if self._running is None:
            return
        self._signal(signal.SIGTERM)
        try:
            until(self._is_gone, self._grace, lambda: f"{self.name} does not end")
        except NotReady:
            self.kill()
        self._running = None

    def kill(self) -> None:
        """End it as the kernel does."""
        self._signal(signal.SIGKILL)
        until(self._is_gone, _BURIAL, lambda: f"{self.name} outlives its end")

    def pause(self) -> None:
        """Stop it as it stands, as if its machine hung."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        send = os.killpg if self.place.is_apart else os.kill
        if not self._is_gone():
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, number)

    def _is_gone(self) -> bool:
        if self.runs:
            return False
        if self.place.is_apart:
            # What brought the program there may have ended before it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, 0)
                return False
        return True

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60) -> None:
        """Until it is ready; raises `NotReady` if it ends before, or takes too long."""
        until(ready, seconds, lambda: f"{self.name} is not ready: {self.tail()}", lambda: self.runs)

    def tail(self) -> str:
        """What it wrote last."""
        return self.log.read_text(errors="replace")[-_TAIL:]


def until(
    ready: Callable[[], bool],
    seconds: float,
    complaint: Callable[[], str],
    may_wait: Callable[[], bool] = lambda: True,
) -> None:
    """Look again and again; raises `NotReady` with the complaint after these seconds."""
    end, tick = time.monotonic() + seconds, _FIRST_TICK
    while not ready():
        if not may_wait() or time.monotonic() > end:
            raise NotReady(complaint())
        time.sleep(tick)
        tick = min(_SLOWER * tick, _LONGEST_TICK)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
