"""The fork server: imports modules once, then starts a child for each request to start one.

The server has one thread and runs no code except that of these modules, so that a fork of the server is
equivalent to a new interpreter. The server ends with all its children when the process that started it ends
or closes the connection, or when the server is killed (on Linux, the kernel then kills the children).
"""

import contextlib
import gc
import importlib
import multiprocessing.process
import os
import random
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from kfpytorch_common.forkserver import child
from kfpytorch_common.forkserver.request_loop import RequestLoop
from kfpytorch_common.loaded_modules import find_loaded


def serve(control: socket.socket, parent: int, preload: Sequence[str], inherited: Any = None) -> NoReturn:
    """Import the modules `preload`, then handle requests until `control` closes or the process `parent` ends.

    The server ignores import errors, because the children report them. All children receive `inherited`.
    """
    _detach_terminal()
    # The collector would repeatedly scan all modules while they load. A later collection in a child would
    # copy every page that it touches.
    gc.disable()
    for name in preload if child.can_fork() else ():  # A child in a new interpreter imports them itself.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    renew_state: Callable[[], None] = renew_unseeded_state
    if inherited is None:  # This is not a fork of a process that ran code of the user.
        renew_state = partial(renew_random_state, list_generators())
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
    """Close the caller's streams in this server, so that a reader of them does not wait for the server."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        # The caller decides when its group ends; a signal to the whole terminal is not for the server.
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # Until there are children, SIGTERM is the fastest way to end the server.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# torch's own seed has 64 bits; a smaller seed was set by the user.
_SEEDS_OF_USERS: Final = 1 << 32


def list_generators() -> list[random.Random]:
    """Return all instances of `random.Random`, such as flytekit's generator for the names of paths."""
    gc.unfreeze()  # `get_objects` omits frozen objects, and `prestart` may have frozen the generators.
    return [thing for thing in gc.get_objects() if type(thing) is random.Random]


def renew_random_state(generators: Sequence[random.Random]) -> None:
    """Reseed random number generators in a fork: `generators` of libraries, and those of numpy and torch.

    Use this function only in forks of a server that ran no code of the user, because it overwrites a
    seed that the user has set.
    """
    for generator in generators:
        generator.seed()
    multiprocessing.process.current_process().authkey = os.urandom(32)
    tempfile.tempdir = None  # The cached path depends on the environment of the server.
    if numpy := find_loaded("numpy"):
        numpy.random.seed()
    if torch := find_loaded("torch"):
        torch.default_generator.seed()  # A GPU's generator is created and seeded in the child.


def renew_unseeded_state() -> None:
    """Reseed random number generators in a fork, except those of numpy and torch that the user has seeded."""
    multiprocessing.process.current_process().authkey = os.urandom(32)
    if flytekit := find_loaded("flytekit.interfaces.random"):
        flytekit.random.seed()
    if (numpy := find_loaded("numpy")) and not _is_seeded(numpy):
        numpy.random.seed()
    if (torch := find_loaded("torch")) and torch.initial_seed() >= _SEEDS_OF_USERS:
        torch.default_generator.seed()


def _is_seeded(numpy: object) -> bool:
    """True if the user has seeded numpy, which removes the seed sequence that numpy created at its import."""
    with contextlib.suppress(AttributeError):
        return numpy.random.mtrand._rand._bit_generator._seed_seq is None  # type: ignore[attr-defined]
    return False
