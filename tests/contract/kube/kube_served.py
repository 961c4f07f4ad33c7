"""Runs ``kfpytorch serve --cluster kubernetes`` as a process with a fake API server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kube_server import KubeServer, kubeconfig

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")


@dataclass
class Serving:
    """A server that is ready."""

    endpoint: str
    token: str


@contextmanager
def serve(
    server: KubeServer, folder: Path, flags: Sequence[str | Path] = (), **environment: str
) -> Iterator[Serving]:
    """Start a server with its default settings and end it. An existing state directory is used again."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    config = kubeconfig(server, folder / "kubeconfig")
    command = [KFPYTORCH, "serve", "--cluster", "kubernetes", "--kubeconfig", config, "--host", "127.0.0.1"]
    command += ["--port", "0", "--state", state, "--log-format", "json", *flags]
    words = [str(word) for word in command]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}) as it:
        try:
            assert it.stderr is not None
            assert any(json.loads(line)["message"] == "ready" for line in it.stderr)
            here = json.loads((state / "server.json").read_text())
            yield Serving(endpoint=here["endpoint"], token=here.get("token", ""))
        finally:
            it.kill()
