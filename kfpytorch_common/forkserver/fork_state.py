"""State that libraries draw once, when they are imported, and that a fork must not share.

A fork of the server has the random numbers of its siblings; a new interpreter draws its own. Python
renews the functions of `random`, `tempfile` and OpenSSL by itself.
"""

import contextlib
import gc
import multiprocessing.process
import os
import random
import tempfile
from collections.abc import Sequence
from typing import Final

from kfpytorch_common.loaded_modules import get_loaded

# torch draws a seed of 64 bits for itself; a seed below this one was set by the user.
_SEEDS_OF_USERS: Final = 1 << 32


def list_generators() -> list[random.Random]:
    """Return the generators that the loaded libraries made for themselves, such as flytekit's for paths."""
    return [thing for thing in gc.get_objects() if type(thing) is random.Random]


def renew(generators: Sequence[random.Random]) -> None:
    """Give a fork of a server without user code the random state of a new interpreter.

    Args:
        generators: The generators of the libraries that the server has loaded.
    """
    for generator in generators:
        generator.seed()
    _renew_key()
    tempfile.tempdir = None  # Derived from the server's environment.
    if numpy := get_loaded("numpy"):
        numpy.random.seed()
    if torch := get_loaded("torch"):
        torch.default_generator.seed()  # A GPU's generator is made in the child and draws its own seed.


def renew_unseeded() -> None:
    """Renew the random state of a fork of the user's process, except where the user has set a seed."""
    _renew_key()
    if flytekit := get_loaded("flytekit.interfaces.random"):
        flytekit.random.seed()
    if (numpy := get_loaded("numpy")) and not _is_seeded(numpy):
        numpy.random.seed()
    if (torch := get_loaded("torch")) and torch.initial_seed() >= _SEEDS_OF_USERS:
        torch.default_generator.seed()


def _is_seeded(numpy: object) -> bool:
    """True if the user has seeded numpy: it then drops the sequence that it has drawn at import."""
    with contextlib.suppress(AttributeError):
        return numpy.random.mtrand._rand._bit_generator._seed_seq is None  # type: ignore[attr-defined]
    return False


def _renew_key() -> None:
    multiprocessing.process.current_process().authkey = os.urandom(32)
