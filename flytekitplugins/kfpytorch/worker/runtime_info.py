"""Information about this process, such as the options of a local run, the name of its pod and a free port."""

import contextlib
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flytekit.core.context_manager import FlyteContextManager

from flytekitplugins.kfpytorch.worker.topology import OVERRIDE
from kfpytorch_common import operator_env, prestart

VERBOSE: Final = "FLYTE_KFPYTORCH_VERBOSE"
NO_AGENT_STORE: Final = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
"""The variable that makes `init_process_group` create its own store, for a run without elastic agents.

A rank of an `Elastic` task can start such a run. Without this variable, the run would use the store of the
elastic agent that started the rank.
"""


def is_local() -> bool:
    """True if flytekit runs the task without a cluster."""
    state = FlyteContextManager.current_context().execution_state
    return state is None or state.mode is None or bool(state.is_local_execution())


def format_pod_name() -> str:
    """Return a name such as ``worker-1, pod HOST``, or ``host HOST`` outside the pods of a PyTorchJob.

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


class InvalidLocalMode(ValueError):
    """FLYTE_KFPYTORCH_LOCAL has an invalid value."""


@dataclass(frozen=True, kw_only=True)
class LocalMode:
    """The mode of a local run: a call of the function in this process, or a process for each rank."""

    inline: bool
    ranks: int | None = None
    """The maximum number of ranks. If it is None, the machine determines the maximum."""


def read_local_mode(env: Mapping[str, str], *, replicas_by_default: bool) -> LocalMode:
    """Return the mode that FLYTE_KFPYTORCH_LOCAL sets: ``replicas``, ``inline`` or a number of ranks.

    The default is ``replicas`` if `replicas_by_default` is true, and ``inline`` otherwise.

    Raises:
        InvalidLocalMode: The variable has another value.
    """
    mode = env.get(OVERRIDE, "").strip().lower()
    if not mode:
        return LocalMode(inline=not replicas_by_default)
    if mode in {"inline", "replicas"}:
        return LocalMode(inline=mode == "inline")
    if mode.isdecimal() and int(mode) > 0:
        return LocalMode(inline=False, ranks=int(mode))
    raise InvalidLocalMode(
        f"{OVERRIDE}={env[OVERRIDE]!r} must be 'replicas', 'inline' or a number of ranks above 0"
    )


def is_verbose(env: Mapping[str, str]) -> bool:
    """True if the user requests the output of all ranks: FLYTE_KFPYTORCH_VERBOSE or ``pyflyte -v``.

    The environment variable takes precedence over the option.
    """
    value = env.get(VERBOSE, "").strip().lower()
    if value:
        return value not in {"0", "false", "no"}
    return bool(getattr(_find_pyflyte_run(), "verbose", 0))


def is_under_pyflyte_run() -> bool:
    """True if the current command is `pyflyte run` without --remote."""
    if threading.current_thread() is not threading.main_thread():
        # flytekit runs an eager workflow in a thread, and click's context exists only in the main thread.
        return prestart.find_script(sys.argv) is not None
    return _find_pyflyte_run() is not None


def _find_pyflyte_run() -> Any:
    click = sys.modules.get("click")
    command = click.get_current_context(silent=True) if click else None
    while command is not None:
        # `obj` has the parameters of `pyflyte run`. Compare the name of their class, because an import of the
        # class would import flytekit's CLI.
        if type(command.obj).__name__ == "RunLevelParams":
            return None if command.obj.is_remote else command.obj
        command = command.parent
    return None
