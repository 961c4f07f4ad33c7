"""Runs ``kfpytorch serve`` as a process."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server_metrics import MetricsPage

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")
ENVIRON = {name: os.environ[name] for name in os.environ if not name.startswith(("KFPYTORCH_", "OTEL_"))}
"""The environment without the settings of a server."""
# PR_SET_PDEATHSIG: the kernel kills the server when the test process ends, also if that process is killed.
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass
class Serving:
    process: "subprocess.Popen[bytes]"
    state: Path
    log: Path
    info: dict[str, Any]  # The content of ``server.json``.

    def __post_init__(self):
        self.endpoint, self.token = str(self.info["endpoint"]), str(self.info["token"])
        self.pid = self.process.pid

    @property
    def metrics(self):
        (port,) = re.findall(r"metrics at http://127\.0\.0\.1:(\d+)/", self.log.read_text())
        return MetricsPage(int(port))


@contextmanager
def serve(folder, flags=(), **environment):
    """Start a server with its default settings and end it. An existing state directory is used again.

    The log of the server is in ``server.log``.
    """
    state, log = folder / "state", folder / "server.log"
    command = [KFPYTORCH, "serve", "--port", "0", "--state-dir", state, "--log-format", "json", *flags]
    words = [sys.executable, "-c", _WITH_PARENT, *map(str, command)]
    # A pipe that is not read would block the server.
    with (
        log.open("wb") as stderr,
        subprocess.Popen(words, stderr=stderr, env={**ENVIRON, **environment}) as it,
    ):
        try:
            while not _is_ready(log):
                assert it.poll() is None, log.read_text()
                time.sleep(0.05)
            yield Serving(it, state, log, json.loads((state / "server.json").read_text()))
        finally:
            it.kill()


def _is_ready(log):
    *lines, _ = log.read_text().split("\n")
    return any(json.loads(line)["message"] == "ready" for line in lines)
