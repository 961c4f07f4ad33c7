"""torch's rendezvous, with names for those who did not come."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousParameters,
    dynamic_rendezvous,
    registry,
)

from flytekitplugins.kfpytorch.worker.settings import Launch

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

_POLL: Final = 0.01


class NobodyCame(RuntimeError):
    """The nodes of a job did not meet; the message says who is missing."""


def join(config: "LaunchConfig", launch: Launch) -> RendezvousHandler:
    """A handler for the job's rendezvous.

    Raises:
        NobodyCame: The node that keeps the store cannot be reached.
    """
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    try:
        return registry.get_rendezvous_handler(parameters)
    except RendezvousConnectionError as error:
        host = _host(launch)
        raise NobodyCame(
            f"{host}, which keeps the rendezvous, cannot be reached at {launch.rdzv_endpoint}"
        ) from error


def who_is_missing(rendezvous: RendezvousHandler, launch: Launch) -> str:
    """A sentence on who came to a rendezvous that failed, and who did not."""
    # torch takes this node off the list when it gives up.
    others = [
        str(node.addr).partition(".")[0] for node in _participants(rendezvous) if node.pid != os.getpid()
    ]
    came = sorted({*others, socket.gethostname()})
    number = len(others) + 1
    patience = launch.rdzv_configs.get("join_timeout", launch.rdzv_configs.get("timeout", 600))
    expected = [f"{_job(launch)}-worker-{index}" for index in range(launch.min_nodes)] if _job(launch) else []
    missing = [name for name in expected if name not in came]
    who = ", ".join(missing) if missing else f"{launch.min_nodes - number} node(s)"
    return (
        f"{number} of {launch.min_nodes} nodes came to {launch.rdzv_endpoint} within {patience} s: "
        f"missing {who}; here {', '.join(came)}"
    )


@contextlib.contextmanager
def fresh_store(rendezvous: RendezvousHandler, *, restart: bool) -> Iterator[None]:
    """Have a restarted generation of workers meet in a store of its own.

    torch 2.15 keeps the store of the first generation, and no longer gives each its own prefix: the
    workers find the addresses of those that are gone, and `init_process_group` fails.
    """
    names = ("_shared_tcp_store_server", "_bootstrap_store_info")
    kept = {name: vars(rendezvous).get(name) for name in names}
    if restart:
        for name, value in kept.items():
            if value is not None:
                setattr(rendezvous, name, None)
    yield
    # Until here the old store was alive: workers of nodes that come later may still talk to it.
    kept.clear()


def hurry() -> None:
    """Leave out what torch's rendezvous does for the sake of many hosts that share one store.

    It waits up to 0.3 s before it joins and a second between looks, and walks the stack through all
    modules to name each event, which nobody records. Names that a later torch lacks are left alone.
    """
    quick = {"_delay": lambda seconds: time.sleep(_POLL), "get_method_name": lambda depth=2: "rendezvous"}  # noqa: ARG005
    for name, function in quick.items():
        if hasattr(dynamic_rendezvous, name):
            setattr(dynamic_rendezvous, name, function)


def _participants(rendezvous: RendezvousHandler) -> list[Any]:
    # torch tells nobody else who came.
    holder = getattr(rendezvous, "_state_holder", None)
    return list(getattr(getattr(holder, "state", None), "participants", ()))


def _host(launch: Launch) -> str:
    return launch.rdzv_endpoint.rpartition(":")[0]


def _job(launch: Launch) -> str:
    """The job's name, when the endpoint is the operator's ``<job>-worker-0``."""
    name, found, _ = _host(launch).partition(".")[0].rpartition("-worker-0")
    return name if found else ""
