"""The fork server: imports modules once, then starts a child for each request to start one.

It has one thread and runs no code except the modules to load, so that a fork of it is equivalent to a new
interpreter. It ends with all its children when its caller closes the connection, when its caller ends, or
when it is killed (on Linux, the kernel then kills the children).
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from kfpytorch_common.forkserver import child, fork_state
from kfpytorch_common.forkserver.request_loop import RequestLoop


def main(fd: int, parent: int, preload: Sequence[str]) -> NoReturn:
    """Serve the socket `fd` until it closes. This is the entry point of a new interpreter."""
    serve(socket.socket(fileno=fd), parent, preload)


def serve(control: socket.socket, parent: int, preload: Sequence[str], inherited: Any = None) -> NoReturn:
    """Load `preload`, then handle requests until `control` closes or the process `parent` ends.

    Args:
        control: The connection of the caller.
        parent: The process id of the caller.
        preload: Names of modules to import first. An import error is ignored here, because the children
            report it.
        inherited: A value of this process that all children receive.
    """
    _detach_terminal()
    # The collector would repeatedly scan all modules while they load. A later collection in a child would
    # copy every page that it touches.
    gc.disable()
    for name in preload if child.can_fork() else ():  # A new interpreter would not benefit.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    renew_state: Callable[[], None] = fork_state.renew_unseeded_state
    if inherited is None:  # No process of the user was forked.
        renew_state = partial(fork_state.renew_random_state, fork_state.list_generators())
    gc.freeze()  # Keeping the little garbage is cheaper than finding it.
    gc.enable()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    loop = RequestLoop(control, parent, inherited, renew_state)
    try:
        loop.run()
        loop.register_remaining_scratch()
    finally:
        loop.close_clients()
        os._exit(0)


def _detach_terminal() -> None:
    """Detach from the caller's terminal, so that a program that reads its output does not wait for us."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        # The caller decides when its group ends; a signal to the whole terminal is not for the server.
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # Until there are children, SIGTERM is the fastest way to end the server.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
