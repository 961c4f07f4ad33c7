"""Parses the log of a burn-in and builds its findings."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from backend_plugin.doctor.check import Finding, Severity

_ID: Final = "burn-in"
_KEY: Final = '{"kfpytorch-burn-in":'
_LAST: Final = 10
_ONE_NODE: Final = (
    "all pods were on one node, so the network between nodes was not measured; to measure it, request "
    "more replicas than one node takes, or spread them by topologySpreadConstraints in a pod template"
)
_AS_A_NUMBER: Final = (
    "compare it with what nccl-tests' all_reduce_perf reports on these nodes, or with an earlier burn-in"
)
_SLOW: Final = (
    "a result of CPUs over Gloo, which shows that replicas reach each other, but nothing about GPUs"
)


class SizeMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement of all-reduces with tensors of one size."""

    mebibytes: int
    seconds: float
    """Seconds of one all-reduce, as the mean of all ranks."""
    algbw: float
    """GB/s: the size of the tensor divided by the seconds."""
    busbw: float
    """GB/s as nccl-tests define it: the load of the busiest link, comparable between numbers of ranks."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The result that rank 0 writes."""

    ranks: int
    hosts: int
    """The number of pods."""
    backend: str
    device: str
    torch: str
    sizes: list[SizeMeasurement]


class _ReportLine(msgspec.Struct, frozen=True, rename={"measurement": "kfpytorch-burn-in"}):
    measurement: Measurement


def find_measurement(lines: Iterable[str]) -> Measurement | None:
    """Return the result in the first valid line of a log, or None; other lines are ignored."""
    for line in lines:
        if line.startswith(_KEY):
            try:
                return _DECODER.decode(line).measurement
            except msgspec.DecodeError:
                continue
    return None


def build_finding(level: Severity, sentence: str, remedy: str) -> Finding:
    """Return a finding with the id of the burn-in."""
    return Finding(id=_ID, level=level, sentence=sentence, remedy=remedy)


def build_success(measured: Measurement, nodes: Iterable[str]) -> Finding:
    """Return the finding for a completed burn-in on these Kubernetes nodes."""
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
    return build_finding(Severity.NOTE, sentence, remedy)


def build_failure(why: str, lines: Sequence[str] = ()) -> Finding:
    """Return the finding for a failed burn-in, with its last log lines."""
    last = "".join(f"\n    {line}" for line in [each for each in lines if each.strip()][-_LAST:])
    sentence = f"the burn-in failed: {why}" + (f"; the last lines of its log:{last}" if last else "")
    remedy = (
        "correct the reported cause; the program needs `python` with torch in the task's image, and replicas "
        "that reach each other at every port"
    )
    return build_finding(Severity.ERROR, sentence, remedy)


_DECODER: Final = msgspec.json.Decoder(_ReportLine)
