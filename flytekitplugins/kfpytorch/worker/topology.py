"""Compute the number of processes for a job on one machine, from the request and the machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# The approximate memory of a rank in training, on top of what it shares with the fork server.
_BYTES_PER_RANK: Final = 512 * 1024 * 1024
# Ranks mostly wait for each other, so a few more ranks than processors are acceptable.
_RANKS_AT_LEAST: Final = 8
_RANKS_PER_PROCESSOR: Final = 2

OVERRIDE: Final = "FLYTE_KFPYTORCH_LOCAL"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The available resources of a machine."""

    processors: int
    memory: int
    """Available memory in bytes."""
    gpus: tuple[str, ...] = ()
    """The GPUs, as named in ``CUDA_VISIBLE_DEVICES``."""

    def compute_max_ranks(self) -> int:
        """Return the maximum number of ranks: one per GPU, or else by memory and processors."""
        if self.gpus:
            return len(self.gpus)
        room = self.memory // _BYTES_PER_RANK
        return max(1, min(room, max(_RANKS_AT_LEAST, _RANKS_PER_PROCESSOR * self.processors)))


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The layout of a job whose nodes all run on one machine: the nodes, their processes and devices."""

    nodes: int
    nproc_per_node: int
    devices: tuple[str, ...] = ()
    """``CUDA_VISIBLE_DEVICES`` for each node; empty without GPUs."""
    note: str = ""
    """A message if the layout differs from the request, with a way to avoid this; otherwise empty."""

    @property
    def ranks(self) -> int:
        """The world size."""
        return self.nodes * self.nproc_per_node


class NoGpu(ValueError):
    """A task requests a process for each GPU, and this machine has none."""


def count_processes(asked: int | str, nodes: int, machine: Machine, most: int | None = None) -> int:
    """Return the number of processes on each of `nodes` nodes that share `machine`.

    If `asked` is a number, return it. For ``"gpu"``, ``"cpu"`` or ``"auto"``, divide the number of GPUs or
    processors among the nodes. If the user set a number of ranks, `most`, divide this number instead. The
    result is at least 1.

    Raises:
        NoGpu: `asked` is ``"gpu"``, the machine has no GPU, and `most` is None.
    """
    if not isinstance(asked, str):
        return asked
    if most is not None:
        return max(1, most // nodes)
    gpus = len(machine.gpus)
    count = {"gpu": gpus, "cpu": machine.processors, "auto": gpus or machine.processors}[asked]
    if not count:
        raise NoGpu(
            "nproc_per_node='gpu' needs a GPU, and this machine has none; write nproc_per_node='auto', or "
            f"set {OVERRIDE}={2 * nodes} for {2 * nodes} ranks without GPUs"
        )
    return max(1, count // nodes)


def fit(nodes: int, nproc_per_node: int, machine: Machine, most: int | None = None) -> Topology:
    """Lay out `nodes` times `nproc_per_node` ranks on `machine`, at most `most` if the user set it.

    If fewer ranks are possible, the number of processes per node is reduced first, then that of nodes.
    """
    asked = nodes * nproc_per_node
    limit = machine.compute_max_ranks() if most is None else most
    if asked > limit:
        nodes, nproc_per_node = (nodes, limit // nodes) if limit >= nodes else (limit, 1)
    ranks = nodes * nproc_per_node
    return Topology(
        nodes=nodes,
        nproc_per_node=nproc_per_node,
        devices=_assign_devices(machine.gpus, nodes, nproc_per_node),
        note=_format_note(asked, ranks, machine, most),
    )


def _assign_devices(gpus: Sequence[str], nodes: int, nproc_per_node: int) -> tuple[str, ...]:
    """Return ``CUDA_VISIBLE_DEVICES`` for each node; an empty tuple without GPUs.

    Each node has its own GPUs if there are enough for all ranks. Otherwise the ranks get the GPUs in turn.
    """
    if not gpus:
        return ()
    if len(gpus) >= nodes * nproc_per_node:
        each = len(gpus) // nodes
        return tuple(",".join(gpus[node * each : (node + 1) * each]) for node in range(nodes))
    return tuple(
        ",".join(
            dict.fromkeys(gpus[(node * nproc_per_node + rank) % len(gpus)] for rank in range(nproc_per_node))
        )
        for node in range(nodes)
    )


def _format_note(asked: int, ranks: int, machine: Machine, most: int | None) -> str:
    if most is not None:
        uneven = ranks < min(asked, most)
        return (
            f"{OVERRIDE}={most} does not divide evenly among the nodes: {ranks} ranks run" if uneven else ""
        )
    if asked == ranks:
        return ""
    size = f"{machine.processors} processor(s) and {machine.memory / 2**30:.1f} GiB of free memory"
    why = f"{len(machine.gpus)} GPU(s)" if machine.gpus else size
    return f"{asked} ranks scaled down to {ranks}: this machine has {why}; {OVERRIDE}={asked} runs them all"
