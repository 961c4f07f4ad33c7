"""Where this process runs: in a pod or on somebody's machine, under which name, with which ports."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator

from flytekit.core.context_manager import FlyteContextManager


def is_local() -> bool:
    """Whether flytekit runs this without a cluster."""
    state = FlyteContextManager.current_context().execution_state
    return state is None or state.mode is None or bool(state.is_local_execution())


def pod_name() -> str:
    """``worker-1 on HOST``: the replica as the operator calls it, and the host."""
    host = socket.gethostname()
    found = re.search(r"(master|worker)-\d+$", host)
    node = os.environ.get("NODE_NAME")
    name = f"{found[0]}, pod {host}" if found else f"host {host}"
    return f"{name}, node {node}" if node else name


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody else is given while a process of ours has yet to listen on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        # Both sides say so, and neither listens yet: then the port may be bound twice.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
