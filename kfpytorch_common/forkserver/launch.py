"""Start a fork server in a new interpreter, or as a fork of this process."""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfpytorch_common.deferred_signals import defer_signals
from kfpytorch_common.forkserver import child, server
from kfpytorch_common.forkserver.client import Client

# Variables that are read only when an interpreter or a library starts; a fork cannot change them.
_READ_AT_IMPORT = (
    "ATEN_", "DYLD_", "FLYTE_KFPYTORCH_FORK", "FLYTE_SDK_LOGGING", "GOMP_", "KMP_", "LD_", "MALLOC_",
    "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_",
)  # fmt: skip
# Exceptions to these prefixes: these variables still have an effect in a fork.
_APPLIED_LATER = (
    "KMP_INIT_AT_FORK",  # torch sets it at import.
    "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONPATH", "PYTHONUNBUFFERED", "TORCH_ELASTIC_",
    "TORCH_FR_", "TORCH_GLOO_", "TORCH_NCCL_",
)  # fmt: skip


@dataclass
class ForkServer:
    """A running fork server, with the connection of this process to it."""

    client: Client
    pid: int
    env: Mapping[str, str]
    owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.stop)

    def is_suitable(self, env: Mapping[str, str]) -> bool:
        """True if a fork of this server can replace a new interpreter with the environment `env`."""
        return (
            self.owner == os.getpid()
            and self._is_alive()
            and select_import_variables(self.env) == select_import_variables(env)
        )

    def stop(self) -> None:
        """End the server with its children, and wait until they have ended."""
        atexit.unregister(self.stop)
        if self.owner != os.getpid():
            return
        # SIGTERM ends a server that still loads. Later the server ignores SIGTERM, and the message of
        # `client.stop` ends it, even if another process has a copy of the socket.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self.client.stop()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _is_alive(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False


def select_import_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in `env` that take effect only in a new interpreter, not in a fork."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_READ_AT_IMPORT) and not name.startswith(_APPLIED_LATER)
    }


def start_fresh_server(preload: Sequence[str]) -> ForkServer:
    """Start a fork server in a new interpreter, which imports only the modules `preload`."""
    own_end, server_end = socket.socketpair()
    home = str(Path(__file__).resolve().parents[2])
    code = (
        # With -c the working directory is first on the path, and may contain a random.py of the user.
        f"import sys; sys.path[:] = [*filter(None, sys.path), {home!r}]\n"
        "import socket\n"
        "from kfpytorch_common.forkserver import server\n"
        f"server.serve(socket.socket(fileno={server_end.fileno()}), {os.getpid()}, {list(preload)!r})"
    )
    env = dict(os.environ)
    process = subprocess.Popen(
        child.build_interpreter_command(code),
        pass_fds=[server_end.fileno()],
        # One thread, because threads that libraries start at import do not survive a fork.
        env={**env, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    server_end.close()
    process.returncode = 0  # `ForkServer.stop` waits for it.
    return ForkServer(Client(own_end), process.pid, env)


def start_forked_server(preload: Sequence[str], inherited: Any = None) -> ForkServer:
    """Start a fork server as a fork of this process. The server also imports the modules `preload`.

    The children of the server receive the object `inherited` through the fork, without pickling.
    """
    own_end, server_end = socket.socketpair()
    caller = os.getpid()
    env = dict(os.environ)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # A fork would write buffered output a second time.
    # The callbacks of the interpreter around a fork would drop the exception of a signal handler.
    with defer_signals(signal.SIGINT, signal.SIGTERM) as signals:
        pid = os.fork()
        if pid == 0:
            try:
                atexit._clear()
                own_end.close()
                os.setsid()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if preload:
                    os.environ["OMP_NUM_THREADS"] = "1"
                server.serve(server_end, caller, preload, inherited)
            finally:
                os._exit(child.EXIT_BROKEN)
        server_end.close()
        started = ForkServer(Client(own_end), pid, env)
        signals.deliver()
    return started
