"""State of a process that libraries set up when they are imported: targets of a fork server."""

import gc
import json
import logging
import multiprocessing
import os
import random
import secrets
import signal
import ssl
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flytekit.bin.entrypoint  # noqa: F401
import numpy as np
import torch
from flytekit.core.data_persistence import FileAccessProvider

from kfpytorch_common.forkserver.child import ChildStart


class Drawn:
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()])


def _batch() -> Any:
    """Return the batches of a shuffled loader with worker processes that draw random numbers."""
    loader = torch.utils.data.DataLoader(Drawn(), batch_size=16, shuffle=True, num_workers=1)
    return [batch.tolist() for batch in loader]


def _aiohttp_mask() -> int:
    from aiohttp._websocket import writer

    return int(writer.WebSocketWriter(None, None, use_mask=True).get_random_bits())


def _symbol() -> int:
    from sympy.core import symbol

    return int(symbol.Dummy._prng.getrandbits(64))


INDEPENDENT: dict[str, Callable[[], Any]] = {
    "torch seed": torch.initial_seed,
    "torch numbers": lambda: torch.rand(2).tolist(),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(64)).tolist(),
    "initial weights": lambda: [each.tolist() for each in torch.nn.Linear(2, 2).parameters()],
    "data loader": _batch,
    "random": random.random,
    "numpy": lambda: float(np.random.rand()),
    "numpy generator": lambda: float(np.random.default_rng().random()),
    "flytekit names": lambda: str(FileAccessProvider.get_random_string()),
    "aiohttp masks": _aiohttp_mask,
    "sympy symbols": _symbol,
    "uuid1": lambda: str(uuid.uuid1()),
    "uuid4": lambda: str(uuid.uuid4()),
    "secrets": secrets.token_hex,
    "openssl": lambda: ssl.RAND_bytes(16).hex(),
    "temporary names": tempfile.mktemp,
    "authentication key": lambda: bytes(multiprocessing.current_process().authkey).hex(),
}
"""Values that differ between two interpreters, so that they must differ between two forks."""

EQUAL: dict[str, Callable[[], Any]] = {
    "torch threads": lambda: [torch.get_num_threads(), torch.get_num_interop_threads()],
    "torch parallel": lambda: torch.__config__.parallel_info().splitlines(),
    "torch defaults": lambda: [
        str(torch.get_default_dtype()),
        str(torch.get_default_device()),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.cuda.is_initialized(),
    ],
    "python threads": lambda: [each.name for each in threading.enumerate()],
    "native threads": lambda: len([*Path("/proc/self/task").glob("*")]),
    "children": lambda: len(multiprocessing.active_children()),
    "root logger": lambda: [type(each).__name__ for each in logging.getLogger().handlers],
    # Sorted, because the order depends on the imports.
    "warnings": lambda: sorted(str(each[:3]) for each in warnings.filters),
    "signals": lambda: [str(signal.getsignal(name)) for name in (signal.SIGTERM, signal.SIGCHLD)],
    "temporary directory": tempfile.gettempdir,
    "time zone": lambda: [time.tzname[0], time.localtime(0).tm_hour],
    "collector": lambda: [gc.isenabled(), gc.get_threshold()],
    "limits": lambda: [sys.getrecursionlimit(), sys.getswitchinterval()],
}
"""Values that a new interpreter reads from its environment."""


def probe(start: ChildStart) -> int:
    """Write the values of this process to the descriptor of the test."""
    values: dict[str, Any] = {}
    for name, read in {**EQUAL, **INDEPENDENT}.items():
        try:
            values[name] = read()
        except ImportError:  # An optional library.
            values[name] = f"absent in {os.getpid()}" if name in INDEPENDENT else None
    with os.fdopen(start.fds[0], "w") as pipe:
        json.dump(values, pipe)
    return 0
