"""What a burn-in has written, and what is made of it.

Lives here: lines of a log → what was measured → a finding. Does not: getting at the lines.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from backend_plugin.doctor.check import Finding, Level

ID: Final = "burn-in"
_KEY: Final = '{"kfpytorch-burn-in":'
_LAST: Final = 10
_ONE_NODE: Final = (
    "all of them were on one node, so the network between nodes was not measured; to measure it, ask for "
    "more replicas than one node takes, or spread them by topologySpreadConstraints in a pod template"
)
_AS_A_NUMBER: Final = (
    "compare it with what nccl-tests' all_reduce_perf reports on these nodes, or with an earlier burn-in"
)
_SLOW: Final = "of CPUs over Gloo, which says that replicas reach each other and nothing about GPUs"


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """All-reduces of tensors of one size."""

    mebibytes: int
    seconds: float
    """Of one of them, the mean of all ranks."""
    algbw: float
    """GB/s: the tensor by the seconds."""
    busbw: float
    """GB/s as nccl-tests define it: what the busiest link carries, whatever the number of ranks."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 tells."""

    ranks: int
    hosts: int
    """How many pods they were in."""
    backend: str
    device: str
    torch: str
    sizes: list[Size]


class _Line(msgspec.Struct, frozen=True, rename={"said": "kfpytorch-burn-in"}):
    said: Measured


def read(lines: Iterable[str]) -> Measured | None:
    """What was measured, if a line says it; others may stand around it."""
    for line in lines:
        if line.startswith(_KEY):
            try:
                return _DECODER.decode(line).said
            except msgspec.DecodeError:
                continue
    return None


def well(measured: Measured, nodes: Iterable[str]) -> Finding:
    """It was run on these nodes."""
    count = len({*nodes})
    speeds = ", ".join(f"{each.busbw:.3g} GB/s at {each.mebibytes} MiB" for each in measured.sizes)
    where = f"{measured.hosts} pods on {count} node{'' if count == 1 else 's'}"
    sentence = (
        f"{measured.ranks} ranks in {where} all-reduced with {measured.backend} on {measured.device} "
        f"(torch {measured.torch}), bus bandwidth {speeds}"
    )
    remedy = _ONE_NODE if count == 1 else _AS_A_NUMBER
    if measured.backend == "gloo":
        remedy = f"{remedy}; it is {_SLOW}"
    return Finding(id=ID, level=Level.NOTE, sentence=sentence, remedy=remedy)


def ill(why: str, lines: Sequence[str] = ()) -> Finding:
    """It came to nothing."""
    last = "".join(f"\n    {line}" for line in [each for each in lines if each.strip()][-_LAST:])
    sentence = f"the burn-in failed: {why}" + (f"; the last lines of its log:{last}" if last else "")
    remedy = (
        "put right what it says; the program needs `python` with torch in the task's image, and replicas "
        "that reach each other at every port"
    )
    return Finding(id=ID, level=Level.ERROR, sentence=sentence, remedy=remedy)


def late(waited: str, last: str) -> Finding:
    """It was not over in time."""
    return Finding(
        id=ID,
        level=Level.ERROR,
        sentence=f"the burn-in was not over within {waited}; at last it was {last}",
        remedy="put right what it waits for, or give it more time by --burn-in-timeout",
    )


def not_run(why: str, remedy: str) -> Finding:
    """Nothing was made."""
    return Finding(id=ID, level=Level.UNKNOWN, sentence=f"no burn-in was run: {why}", remedy=remedy)


def left(namespace: str, name: str, why: str) -> Finding:
    """The job may still be there."""
    return Finding(
        id=ID,
        level=Level.WARNING,
        sentence=f"the burn-in's job {namespace}/{name} could not be deleted: {why}",
        remedy=f"kubectl delete pytorchjob -n {namespace} {name}",
    )


_DECODER: Final = msgspec.json.Decoder(_Line)
