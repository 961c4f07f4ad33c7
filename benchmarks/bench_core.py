"""Measure calls per second of `plan` and `judge` on one core, and the memory after many calls.

`plan` creates the Kubernetes objects of a task, and `judge` computes the Flyte phase of a job.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from benchmarks.comparison import Row, Spread, Target
from benchmarks.measure import SCRIPTS, Command
from benchmarks.scripts.job_kinds import KINDS

CALLS: Final = MappingProxyType({"plan": 20_000, "judge": 100_000})
MANY: Final = 1_000_000
TARGETS: Final = MappingProxyType(
    {
        "plan": Target(text="≥ 2,000 a second", low=2_000, high=float("inf")),
        "judge": Target(text="≥ 20,000 a second", low=20_000, high=float("inf")),
    }
)
# The memory that the allocator keeps varies by this amount.
FLAT: Final = Target(text="flat: ≤ 2 MiB more", high=2)


def measure(repeat: int) -> list[Row]:
    """Measure this project alone; elsewhere these functions cannot be called without a cluster."""
    return [
        row
        for name, calls in CALLS.items()
        for kind in KINDS
        for row in (_build_rate_row(name, kind, calls, repeat), _build_memory_row(name, kind))
    ]


def _build_rate_row(name: str, kind: str, calls: int, repeat: int) -> Row:
    spread = Spread.from_values(_run(name, kind, calls)["per_second"] for _ in range(repeat))
    target = TARGETS[name]
    return Row(
        what=f"{name}(), {calls:,} different {kind}s, one core",
        ours=spread.format(pattern="{:,.0f}", unit=" a second"),
        against="",
        theirs="",
        target=target.text,
        is_reached=target.is_reached(spread.median),
    )


def _build_memory_row(name: str, kind: str) -> Row:
    resident = _run(name, kind, MANY)["resident"]
    return Row(
        what=f"memory of {name}() for {kind}s after {MANY // 10:,} and after {MANY:,} calls",
        ours=f"{resident[0]:.1f} and {resident[-1]:.1f} MiB",
        against="",
        theirs="",
        compared=f"{resident[-1] - resident[0]:+.1f} MiB",
        target=FLAT.text,
        is_reached=FLAT.is_reached(resident[-1] - resident[0]),
    )


def _run(name: str, kind: str, calls: int) -> Mapping[str, Any]:
    print(f"  {name}() {calls:,} times, {kind}s", flush=True)
    command = Command(program="python", arguments=(str(SCRIPTS / f"{name}_rate.py"), str(calls), kind))
    printed: Mapping[str, Any] = command.run().printed
    return printed
