"""Keep torch's stores on the loopback interface while all ranks of a job are on one machine.

A `TCPStore` listens on all interfaces and has no authentication. It accepts a listening socket: this module
passes one that is bound to the loopback address.
"""

import contextlib
import functools
import importlib.util
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kfpytorch_common import operator_env

# The parameters of `TCPStore` in torch's order, because callers may pass them by position.
_PARAMETERS: Final = (
    "host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers", "multi_tenant",
    "master_listen_fd", "use_libuv",
)  # fmt: skip
_BACKLOG: Final = 4096


def find_loopback_address() -> str | None:
    """Return the loopback address for the rendezvous; None if ranks may be on other machines."""
    return operator_env.LOOPBACK_ADDRESS if os.environ.get(operator_env.LOOPBACK_ONLY) == "1" else None


@contextlib.contextmanager
def keep_stores_on_loopback() -> Iterator[None]:
    """Make each `TCPStore` that this process serves listen only on its host address, if that is loopback.

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
        given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        bound = _bind_socket(given)
        if bound is None:
            return original(self, *args, **kwargs)
        if not _can_libuv_take_sockets():
            given["use_libuv"] = False
        given["port"] = bound.getsockname()[1]
        given["master_listen_fd"] = bound.detach()
        return original(self, **given)

    return init


def _bind_socket(given: Mapping[str, Any]) -> socket.socket | None:
    """Return a listening socket for a store with the arguments `given`, or None.

    None means that torch receives the arguments unchanged.
    """
    host = given.get("host_name")
    needs_socket = given.get("is_master") and given.get("master_listen_fd") is None
    if not needs_socket or not _is_loopback(host):
        return None
    own = operator_env.LOOPBACK_ADDRESS if host == "localhost" else str(host)
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    try:
        return socket.create_server((own, given.get("port", 0)), family=family, backlog=_BACKLOG)
    except OSError:
        # The port is in use. If a store of this process uses it, torch shares that store. If another process
        # uses it, torch raises the error that its callers expect.
        return None


def _can_libuv_take_sockets() -> bool:
    """True if `TCPStore` accepts a listening socket with ``use_libuv=True``; without libuv it always does."""
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
