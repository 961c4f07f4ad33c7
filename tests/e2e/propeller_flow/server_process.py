"""`kfpytorch serve --cluster embedded` as a process that tests start, kill and restart."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import yaml
from propeller import Wire

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")
TESTS = Path(__file__).parents[2]
PATIENCE = 30.0
# A fixed token, which a restart does not change.
TOKEN = "of-the-tests"


class RoadServer:
    """A server with its state, store and pods below one directory."""

    def __init__(self, root: Path, *options: str, settings: Mapping[str, object] | None = None) -> None:
        self.root = root
        self.state = root / "state"
        self.store = root / "store"
        self.log = root / "server.log"
        self.starts = 0
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        for folder in (self.state, self.store):
            folder.mkdir(parents=True, exist_ok=True)
        (root / "settings.yaml").write_text(yaml.safe_dump(dict(settings or {})))
        (root / "token").write_text(TOKEN)
        self._options = options

    # ---- lifecycle

    def start(self) -> "RoadServer":
        """Start the server and wait until it listens, on the same port as before."""
        self.spawn()
        self.listen()
        return self

    def listen(self) -> None:
        """Wait until the server listens."""
        self._port = int(str(self._wait_for_server_file()["endpoint"]).rpartition(":")[2])

    def spawn(self) -> None:
        """Start the process without waiting."""
        command = [KFPYTORCH, "serve", "--cluster", "embedded", "--port", str(self._port)]
        command += ["--state-dir", self.state, "--settings", self.root / "settings.yaml"]
        command += ["--token-file", self.root / "token", "--output-prefixes", self.store.as_uri()]
        command += ["--log-format", "text", *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], cwd=TESTS, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.starts += 1

    def kill(self) -> None:
        """Kill the server with SIGKILL, as the kernel does when memory runs out."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def wire(self) -> Wire:
        return Wire(self.endpoint, TOKEN)

    def _wait_for_server_file(self) -> dict[str, object]:
        """Wait for the server file of this process and return its content."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                found = json.loads((self.state / "server.json").read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                found = {}
            if found.get("pid") == self._process.pid:
                return dict(found)
            assert self._process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise TimeoutError(f"the server does not listen:\n{self.log.read_text()}")

    # ---- processes

    def processes(self, argument: str | None = None) -> list[psutil.Process]:
        """Return other processes with this text in arguments or environment. Default: the root directory."""
        text = argument or str(self.root)
        own = self._process.pid if self._process else 0
        return [each for each in psutil.process_iter() if each.pid != own and has_text(each, text)]

    def left(self, argument: str | None = None, patience: float = PATIENCE) -> list[psutil.Process]:
        """Wait up to `patience` seconds, and return the remaining processes."""
        deadline = time.monotonic() + patience
        while (left := self.processes(argument)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_text(process: psutil.Process, text: str) -> bool:
    """True if a running process has this text in its arguments or in its environment."""
    try:
        words = [*process.cmdline(), *process.environ().values()]
        return process.status() != psutil.STATUS_ZOMBIE and text in " ".join(words)
    except (psutil.Error, OSError):  # The process has ended or belongs to another user.
        return False
