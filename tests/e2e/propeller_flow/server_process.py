"""`kfpytorch serve --cluster embedded` as a process that tests start, kill and restart."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml
from propeller import Wire

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")
PATIENCE = 30.0
TOKEN = "of-the-tests"  # A fixed token, which a restart does not change.


class RoadServer:
    """A server with its state, store and pods below one directory."""

    def __init__(self, root, *options, settings=None):
        self.root = root
        self.state, self.store, self.log = root / "state", root / "store", root / "server.log"
        self._port = 0
        for folder in (self.state, self.store):
            folder.mkdir()
        (root / "settings.yaml").write_text(yaml.safe_dump(dict(settings or {})))
        (root / "token").write_text(TOKEN)
        self._options = options

    def start(self):
        """Start the server and wait until it listens, on the same port as before."""
        self.spawn()
        self.listen()
        return self

    def spawn(self):
        command = [KFPYTORCH, "serve", "--cluster", "embedded", "--port", str(self._port)]
        command += ["--state-dir", self.state, "--settings", self.root / "settings.yaml"]
        command += ["--token-file", self.root / "token", "--output-prefixes", self.store.as_uri()]
        command += ["--log-format", "text", *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def listen(self):
        self._port = wait_until(self._read_port, PATIENCE)

    def _read_port(self):
        """Return the port in the server file of this process, or 0 if it has not written the file."""
        assert self._process.poll() is None, self.log.read_text()
        try:
            info = json.loads((self.state / "server.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return 0
        return int(info["endpoint"].rpartition(":")[2]) if info["pid"] == self._process.pid else 0

    def kill(self):
        """Kill the server with SIGKILL, as the kernel does when memory runs out."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def wire(self):
        return Wire(f"127.0.0.1:{self._port}", TOKEN)

    def processes(self, argument=None):
        """Return other processes with this text in arguments or environment. Default: the root directory."""
        text, own = argument or str(self.root), self._process.pid
        return [each for each in psutil.process_iter() if each.pid != own and has_text(each, text)]

    def left(self, argument=None):
        """Wait some time for the end of these processes, and return the remaining ones."""
        deadline = time.monotonic() + PATIENCE
        while (left := self.processes(argument)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


def wait_until(find, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def has_text(process, text):
    """True if a running process has this text in its arguments or in its environment."""
    try:
        words = [*process.cmdline(), *process.environ().values()]
        return process.status() != psutil.STATUS_ZOMBIE and text in " ".join(words)
    except (psutil.Error, OSError):  # The process has ended or belongs to another user.
        return False
