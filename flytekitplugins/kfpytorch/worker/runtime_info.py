"""Information about this process: local or in a pod, the name of its pod, a free port."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from typing import Final

from flytekit.core.context_manager import FlyteContextManager

from kfpytorch_common import operator_env

NO_AGENT_STORE: Final = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
"""The variable with which `init_process_group` creates its own store, in a run without elastic agents.

A rank of an `Elastic` task can start such a run. Without this variable, the run would use the store of the
agent of that rank.
"""


def is_local() -> bool:
    """True if flytekit runs the task without a cluster."""
    state = FlyteContextManager.current_context().execution_state
    return state is None or state.mode is None or bool(state.is_local_execution())


def format_pod_name() -> str:
    """Return ``worker-1, pod HOST``, or ``host HOST`` if the host name is not that of a PyTorchJob replica.

    If ``NODE_NAME`` is set, add ``, node NODE_NAME``.
    """
    host = socket.gethostname()
    match = re.search(r"(master|worker)-\d+$", host)
    node = os.environ.get("NODE_NAME")
    name = f"{match[0]}, pod {host}" if match else f"host {host}"
    return f"{name}, node {node}" if node else name


@contextlib.contextmanager
def reserve_port() -> Iterator[int]:
    """Yield the number of a free local port, and reserve it while the context is active."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        # With this option on both sockets, the port can be bound twice while neither socket listens.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((operator_env.LOOPBACK_ADDRESS, 0))
        yield sock.getsockname()[1]
