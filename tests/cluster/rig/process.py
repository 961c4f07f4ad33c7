"""Programs of a cluster: start, readiness, logs and termination with the test process."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_FIRST_TICK = 0.02
_LONGEST_TICK = 0.25
_SLOWER = 1.3
"""The factor between two polling intervals. Long waits poll rarely, to save the CPU for other processes."""
_TAIL = 4_000
_BURIAL = 60  # The kernel kills a process immediately, but it may be busy with others before.
_GRACE = 5


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place for programs, with the addresses of their servers."""

    address: str = "127.0.0.1"  # The address at which this process reaches servers in the place.
    listen: str = "127.0.0.1"  # The address that servers must listen on to be reachable.
    holder: int = 0  # The id of the process that holds the namespaces; 0 for those of this process.

    @property
    def is_apart(self):
        """True if the program runs in other namespaces, as a child of nsenter."""
        return self.holder != 0

    def command(self, words):
        command = [str(word) for word in words]
        if not self.is_apart:
            return command
        nsenter = shutil.which("nsenter")
        assert nsenter is not None, "nsenter is not on the PATH"
        return [nsenter, f"--target={self.holder}", "--mount", "--net", "--pid", "--", *command]

    def is_ready(self, port, path="readyz"):
        """Return True if the server at this port of the place reports at this path that it is ready."""
        try:
            return httpx.get(f"http://{self.address}:{port}/{path}").is_success
        except httpx.HTTPError:
            return False

    def run(self, *words):
        """Run a short command and return its standard output. Fails the test if the command fails."""
        ended = run_command(*self.command(words))
        assert ended.returncode == 0, f"{' '.join(map(str, words))}: {ended.stdout}{ended.stderr}"
        return ended.stdout


LOOPBACK = Place()


def run_command(*words, timeout=240, **options):
    """Run a command to its end with any exit status; its input is empty, and its output is text."""
    known = {"input": "", "capture_output": True, "text": True, "check": False, **options}
    return subprocess.run([str(each) for each in words], timeout=timeout, **known)  # noqa: PLW1510 - in `known`.


class NotReady(AssertionError):
    """A program has ended or was not ready in time; the message has the end of its log."""


class Process:
    """A program; a context manager that starts and stops it.

    The kernel kills the program when the thread that started it ends, so start it from a thread that lasts.
    """

    def __init__(self, command, log, *, environment=None, directory=None, place=LOOPBACK):
        self.command = [str(word) for word in command]
        self.log = log
        self._environment = None if environment is None else dict(environment)
        self._directory = directory
        self.place = place
        self._running = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def name(self):
        return Path(self.command[0]).name

    @property
    def pid(self):
        """The id of the started process: in another place nsenter, with the program in its process group."""
        assert self._running is not None, f"{self.name} was not started"
        return self._running.pid

    @property
    def runs(self):
        return self._running is not None and self._running.poll() is None

    def start(self):
        """Start the program, or restart it after it has ended. Its log is appended to."""
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
                # Ctrl-C must reach only the test runner. The parent-death signal ends programs that would
                # outlive it.
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - nothing but a system call.
            )

    def stop(self):
        """Send SIGTERM, and SIGKILL after the grace period."""
        if self._running is None:
            return
        self._signal(signal.SIGTERM)
        try:
            wait_until(self._is_gone, _GRACE, lambda: f"{self.name} does not end")
        except NotReady:
            self.kill()
        self._running = None

    def kill(self):
        """Send SIGKILL and wait until the process has ended."""
        self._signal(signal.SIGKILL)
        wait_until(self._is_gone, _BURIAL, lambda: f"{self.name} outlives its end")

    def _signal(self, number):
        send = os.killpg if self.place.is_apart else os.kill
        if not self._is_gone():
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, number)

    def _is_gone(self):
        if self.runs:
            return False
        if self.place.is_apart:
            # nsenter may have ended before the program.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, 0)
                return False
        return True

    def wait_until(self, ready, seconds=120):
        """Wait until the program is ready. Raises `NotReady` if it ends before, or after `seconds`."""
        wait_until(ready, seconds, lambda: f"{self.name} is not ready: {self.tail()}", lambda: self.runs)

    def tail(self):
        return self.log.read_text(errors="replace")[-_TAIL:]


def wait_until(
    ready, seconds=60, complaint=lambda: "the condition is not met in time", may_wait=lambda: True
):
    """Poll until `ready` returns True.

    Args:
        ready: The condition to wait for.
        seconds: The timeout.
        complaint: Returns the message of the error.
        may_wait: Ends the wait early if it returns False.

    Raises:
        NotReady: If the condition is not met in time.
    """
    end, tick = time.monotonic() + seconds, _FIRST_TICK
    while not ready():
        if not may_wait() or time.monotonic() > end:
            raise NotReady(complaint())
        time.sleep(tick)
        tick = min(_SLOWER * tick, _LONGEST_TICK)


def wait_for(read, is_wanted, seconds=60):
    """Poll until `read` returns a wanted value, and return it. The error has the last other value."""
    latest = []

    def is_read():
        latest[:] = [read()]
        return bool(is_wanted(latest[0]))

    wait_until(is_read, seconds, lambda: f"not wanted: {latest[0]}")
    return latest[0]


def _die_with_parent():
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
