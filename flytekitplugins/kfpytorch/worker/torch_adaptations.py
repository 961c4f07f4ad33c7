"""Adapt torch.distributed to one machine: stores on the loopback interface, and gloo instead of nccl.

A `TCPStore` listens on all interfaces and has no authentication. This module therefore passes it a socket
that listens only on the loopback address.
"""

import contextlib
import functools
import importlib.util
import inspect
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kfpytorch_common import operator_env

# The parameters of `TCPStore` in torch's order, because callers may pass them by position.
_PARAMETERS: Final = (
    "host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers", "multi_tenant",
    "master_listen_fd", "use_libuv",
)  # fmt: skip
_BACKLOG: Final = 4096

_TAKES_BACKEND = ("init_process_group", "new_group")
WARNING = "kfpytorch: this machine has no GPU: gloo replaces nccl (a cluster uses nccl)"


def find_loopback_address() -> str | None:
    """Return the loopback address for the rendezvous; None if ranks may be on other machines."""
    return operator_env.LOOPBACK_ADDRESS if os.environ.get(operator_env.LOOPBACK_ONLY) == "1" else None


@contextlib.contextmanager
def keep_stores_on_loopback() -> Iterator[None]:
    """Make each `TCPStore` that this process serves for a loopback address listen only on this address.

    This has an effect only if torch is installed and the environment states that all ranks are on this
    machine.
    """
    has_effect = find_loopback_address() is not None and importlib.util.find_spec("torch") is not None
    distributed: Any = importlib.import_module("torch.distributed") if has_effect else None
    if distributed is None or not distributed.is_available():
        yield
        return
    # Change the class itself instead of replacing it: torch's modules and user code hold references to it.
    store = distributed.TCPStore
    original = store.__init__
    store.__init__ = _with_bound_socket(original)
    try:
        yield
    finally:
        store.__init__ = original


def _with_bound_socket(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        bound = _bind_socket(arguments)
        if bound is None:
            return original(self, *args, **kwargs)
        if not _can_libuv_take_sockets():
            arguments["use_libuv"] = False
        arguments["port"] = bound.getsockname()[1]
        arguments["master_listen_fd"] = bound.detach()
        return original(self, **arguments)

    return init


def _bind_socket(arguments: Mapping[str, Any]) -> socket.socket | None:
    """Return a listening socket for a `TCPStore` with these `arguments`.

    Return None if torch has to receive the arguments unchanged, without a socket.
    """
    host = arguments.get("host_name")
    needs_socket = arguments.get("is_master") and arguments.get("master_listen_fd") is None
    if not needs_socket or not _is_loopback(host):
        return None
    own = str(host).replace("localhost", operator_env.LOOPBACK_ADDRESS)
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    try:
        return socket.create_server((own, arguments.get("port", 0)), family=family, backlog=_BACKLOG)
    except OSError:
        # The port is in use. If a store of this process uses it, torch shares that store. If another process
        # uses it, torch raises the error that its callers expect.
        return None


def _can_libuv_take_sockets() -> bool:
    """True if `TCPStore` accepts a listening socket with ``use_libuv=True``: in torch 2.8 and newer."""
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 8)


def _is_loopback(host: Any) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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

        bound = signature.bind(*args, **kwargs)
        backend = bound.arguments.get("backend")
        if isinstance(backend, str) and "nccl" in backend.lower() and not torch.cuda.is_available():
            warn()
            bound.arguments["backend"] = _replace_backend(backend)
            bound.arguments.pop("device_id", None)
        return function(*bound.args, **bound.kwargs)

    return call


def _print_warning() -> None:
    if os.environ.get("RANK", "0") == "0":
        print(WARNING, file=sys.stderr)  # noqa: T201 - for the user at the terminal.


def _replace_backend(backend: str) -> str:
    devices = dict(part.split(":") for part in backend.lower().split(",") if ":" in part)
    return ",".join(f"{device}:gloo" for device in devices if device != "cuda") or "gloo"
