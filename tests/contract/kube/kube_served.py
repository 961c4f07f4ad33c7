"""Runs ``kfpytorch serve --cluster kubernetes`` as a process with a fake API server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kube_server import KubeServer, kubeconfig

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")
# PR_SET_PDEATHSIG: the kernel kills the server when the test process ends, also if that process is killed.
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass
class Serving:
    """A server that is ready."""

    endpoint: str
    token: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def serve(
    server: KubeServer, folder: Path, flags: Sequence[str | Path] = (), **environment: str
) -> Iterator[Serving]:
    """Start a server with its default settings and end it. An existing state directory is used again.

    The log of the server is in ``server.log``.
    """
    state, log = folder / "state", folder / "server.log"
    state.mkdir(exist_ok=True)
    config = kubeconfig(server, folder / "kubeconfig")
    command = [KFPYTORCH, "serve", "--cluster", "kubernetes", "--kubeconfig", config, "--host", "127.0.0.1"]
    command += ["--port", "0", "--state-dir", state, "--log-format", "json", *flags]
    words = [sys.executable, "-c", _WITH_PARENT, *map(str, command)]
    # A pipe that is not read would block the server.
    with (
        log.open("wb") as stderr,
        subprocess.Popen(words, stderr=stderr, env={**os.environ, **environment}) as it,
    ):
        try:
            while not _is_ready(log):
                assert it.poll() is None, log.read_text()
                time.sleep(0.05)
            here = json.loads((state / "server.json").read_text())
            yield Serving(endpoint=here["endpoint"], token=here.get("token", ""), process=it, log=log)
        finally:
            it.kill()


def _is_ready(log: Path) -> bool:
    *lines, _ = log.read_text().split("\n")
    return any(json.loads(line)["message"] == "ready" for line in lines)
