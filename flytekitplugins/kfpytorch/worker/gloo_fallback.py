"""Replace nccl by gloo in a local run on a machine without a GPU."""

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

_TAKES_BACKEND = ("init_process_group", "new_group")
WARNING = "kfpytorch: this machine has no GPU: gloo replaces nccl (a cluster uses nccl)"


@contextlib.contextmanager
def replace_nccl() -> Iterator[None]:
    """While the context is active, create process groups with gloo instead of nccl if there is no GPU.

    The check for GPUs takes place when a group is created, because the user's code may set
    ``CUDA_VISIBLE_DEVICES`` before.
    """
    from torch import distributed

    if not distributed.is_available():
        yield
        return
    warn = functools.cache(_print_warning)  # The warning is printed once.
    places = [distributed, distributed.distributed_c10d]
    originals = [(place, name, getattr(place, name)) for place in places for name in _TAKES_BACKEND]
    for place, name, original in originals:
        setattr(place, name, _with_gloo(original, warn))
    try:
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)


def _with_gloo(function: Callable[..., Any], warn: Callable[[], None]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        import torch

        given = signature.bind(*args, **kwargs)
        backend = given.arguments.get("backend")
        if isinstance(backend, str) and "nccl" in backend.lower() and not torch.cuda.is_available():
            warn()
            given.arguments["backend"] = _replace_backend(backend)
            given.arguments.pop("device_id", None)
        return function(*given.args, **given.kwargs)

    return call


def _print_warning() -> None:
    if os.environ.get("RANK", "0") == "0":
        print(WARNING, file=sys.stderr)  # noqa: T201 - for the user at the terminal.


def _replace_backend(backend: str) -> str:
    devices = dict(part.split(":") for part in backend.lower().split(",") if ":" in part)
    return ",".join(f"{device}:gloo" for device in devices if device != "cuda") or "gloo"
