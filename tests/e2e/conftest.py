"""Runs of `pyflyte` in a separate process, with checks for remaining processes and files."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# All of these tests train, and some test environments have no torch.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]

PYFLYTE = Path(sys.executable).with_name("pyflyte")
MARK = "KFPYTORCH_TEST_MARK"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self):
        return [line for line in (self.out + self.err).splitlines() if line.strip()]

    @property
    def report(self):
        """The lines from the failure message to the end."""
        lines = self.err.splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("✗")]
        return lines[starts[0] :] if starts else []


@dataclass
class Pyflyte:
    """A `pyflyte run` command that tracks its processes and files."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    callers: list[int] = field(default_factory=list)
    # The path of a socket has at most 107 characters, and data loaders create sockets in this directory.
    temporary: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="e2e-")))

    def start(self, script, *args, **env):
        process = subprocess.Popen(
            [PYFLYTE, "run", str(script), *args],
            env={**os.environ, **self.env, **env, MARK: self.mark, "TMPDIR": str(self.temporary)},
            cwd=script.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_reset_signals,  # noqa: PLW1509
        )
        self.callers.append(process.pid)
        return process

    def run(self, script, *args, timeout=60, **env):
        process = self.start(script, *args, **env)
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err)

    def processes(self):
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [int(each.name) for each in entries if int(each.name) != os.getpid() and self._is_ours(each)]

    def _is_ours(self, entry):
        try:
            return f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
        except OSError:  # The process has ended or belongs to another user.
            return False

    def files(self):
        """Return the remaining files of the runs, on disk and in memory."""
        shared = [path for pid in self.callers for path in Path("/dev/shm").glob(f"kfpytorch-{pid}-*")]
        return [path.name for path in [*self.temporary.glob("kfpytorch-*"), *shared]]

    def left(self, seconds=10.0):
        """Wait up to `seconds` seconds, and return the remaining processes and files."""
        deadline = time.monotonic() + seconds
        while (self.processes() or self.files()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.processes(), self.files()


def _reset_signals():
    # The caller of pytest may ignore them, as nohup and a shell that runs it in the background do.
    for signum in (signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)


@pytest.fixture
def pyflyte(tmp_path):
    run = Pyflyte(tmp_path, {"FLYTE_KFPYTORCH_LOG_DIR": str(tmp_path / "logs")})
    yield run
    left = run.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(run.temporary, ignore_errors=True)
    assert left == []
