"""Renew random state that libraries create at import and that forks must not share.

All forks of the server would have the same random numbers, unlike new interpreters. Python itself renews
the functions of `random`, `tempfile` and OpenSSL.
"""

import contextlib
import gc
import multiprocessing.process
import os
import random
import tempfile
from collections.abc import Sequence
from typing import Final

from kfpytorch_common.loaded_modules import find_loaded

# torch's own seed has 64 bits; a smaller seed was set by the user.
_SEEDS_OF_USERS: Final = 1 << 32


def list_generators() -> list[random.Random]:
    """Return the random generators that loaded libraries created, such as flytekit's for paths."""
    gc.unfreeze()  # `get_objects` omits frozen objects, and `prestart` may have frozen the generators.
    return [thing for thing in gc.get_objects() if type(thing) is random.Random]


def renew_random_state(generators: Sequence[random.Random]) -> None:
    """Give a fork of a server without user code new random state, also in the `generators` of libraries."""
    for generator in generators:
        generator.seed()
    _renew_auth_key()
    tempfile.tempdir = None  # It depends on the environment of the server.
    if numpy := find_loaded("numpy"):
        numpy.random.seed()
    if torch := find_loaded("torch"):
        torch.default_generator.seed()  # A GPU's generator is created and seeded in the child.


def renew_unseeded_state() -> None:
    """Renew the random state of a fork of the user's process, unless the user has set a seed."""
    _renew_auth_key()
    if flytekit := find_loaded("flytekit.interfaces.random"):
        flytekit.random.seed()
    if (numpy := find_loaded("numpy")) and not _is_seeded(numpy):
        numpy.random.seed()
    if (torch := find_loaded("torch")) and torch.initial_seed() >= _SEEDS_OF_USERS:
        torch.default_generator.seed()


def _is_seeded(numpy: object) -> bool:
    """True if the user has seeded numpy, which then drops its seed sequence from the import."""
    with contextlib.suppress(AttributeError):
        return numpy.random.mtrand._rand._bit_generator._seed_seq is None  # type: ignore[attr-defined]
    return False


def _renew_auth_key() -> None:
    multiprocessing.process.current_process().authkey = os.urandom(32)
