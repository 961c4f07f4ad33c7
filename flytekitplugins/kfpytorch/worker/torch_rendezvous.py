"""torch's rendezvous, with errors that list the missing nodes."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousParameters,
    dynamic_rendezvous,
    registry,
)

from flytekitplugins.kfpytorch.worker.launch_settings import ElasticLaunchConfig

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

_POLL: Final = 0.01


class RendezvousFailed(RuntimeError):
    """The rendezvous failed; the message lists the missing nodes."""


def create_handler(config: "LaunchConfig", launch: ElasticLaunchConfig) -> RendezvousHandler:
    """Return a handler for the rendezvous of the job.

    Raises:
        RendezvousFailed: The node that hosts the store cannot be reached.
    """
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **_find_host_role(launch),
        **config.rdzv_configs,
    )
    try:
        return registry.get_rendezvous_handler(parameters)
    except RendezvousConnectionError as error:
        raise RendezvousFailed(
            f"{launch.host}, which hosts the rendezvous, cannot be reached at {launch.rdzv_endpoint}"
        ) from error


def describe_missing_nodes(rendezvous: RendezvousHandler, launch: ElasticLaunchConfig) -> str:
    """Return a message with the nodes that joined a failed rendezvous, and the nodes that are missing."""
    # torch has no public list of participants, and removes this node from it when it gives up.
    state = getattr(getattr(rendezvous, "_state_holder", None), "state", None)
    nodes = getattr(state, "participants", ())
    others = [str(node.addr).partition(".")[0] for node in nodes if node.pid != os.getpid()]
    came = sorted({*others, socket.gethostname()})
    number = len(others) + 1
    timeout = launch.rdzv_configs.get("join_timeout", launch.rdzv_configs.get("timeout", 600))
    first = launch.host.partition(".")[0].removesuffix("0")
    # The operators give the first node the number 0.
    is_numbered = first.endswith(("-worker-", "-node-0-"))
    expected = [f"{first}{index}" for index in range(launch.min_nodes)] if is_numbered else []
    missing = [name for name in expected if name not in came]
    absent = ", ".join(missing) if missing else f"{launch.min_nodes - number} node(s)"
    return (
        f"{number} of {launch.min_nodes} nodes joined at {launch.rdzv_endpoint} within {timeout} s: "
        f"missing {absent}; joined {', '.join(came)}"
    )


@contextlib.contextmanager
def replace_store(rendezvous: RendezvousHandler, *, restart: bool) -> Iterator[None]:
    """If `restart` is true, make `rendezvous` create a new store while the context is active.

    After a restart, torch 2.15 keeps the store of the first workers, and does not change the prefix of the
    keys. The restarted workers would find the addresses of stopped workers, and `init_process_group` would
    fail.
    """
    names = ("_shared_tcp_store_server", "_bootstrap_store_info")
    stores = {name: vars(rendezvous).get(name) for name in names}
    if restart:
        for name, value in stores.items():
            if value is not None:
                setattr(rendezvous, name, None)
    yield
    # The old store stays alive until here, because late workers of other nodes may still use it.
    stores.clear()


def remove_delays() -> None:
    """Remove delays of torch's rendezvous that are useful only for many hosts with a shared store.

    torch waits up to 0.3 s before it joins and 1 s between polls. It also inspects the Python stack to get a
    name for each event.
    """
    quick = {"_delay": lambda seconds: time.sleep(_POLL), "get_method_name": lambda depth=2: "rendezvous"}  # noqa: ARG005
    for name, function in quick.items():
        if hasattr(dynamic_rendezvous, name):
            setattr(dynamic_rendezvous, name, function)


def _find_host_role(launch: ElasticLaunchConfig) -> dict[str, bool]:
    """Return ``{"is_host": True}`` if the endpoint names this host, which then serves the store; else ``{}``.

    Without this parameter, torch compares IP addresses. The DNS may not have the address of this node yet.
    """
    # For a name without a domain, torch itself compares it with the host name.
    label, has_domain, _ = launch.host.partition(".")
    is_host = has_domain and not label.isdecimal() and label == socket.gethostname()
    return {"is_host": True} if is_host and "is_host" not in launch.rdzv_configs else {}
