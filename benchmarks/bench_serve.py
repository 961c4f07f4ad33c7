"""Measure the startup time and memory of a server, and the start of a task in an embedded cluster."""

from typing import Any, Final

from benchmarks.comparison import Row, Spread, Target
from benchmarks.measure import SCRIPTS, Command

READY: Final = Target(text="≤ 1.5 s", high=1.5)
IDLE: Final = Target(text="≤ 80 MiB", high=80)
IDLE_OUTSIDE: Final = Target(text="≤ 110 MiB", high=110)
FIRST_LINE: Final = Target(text="≤ 1.30", high=1.3)
_MEMORY: Final = {"pattern": "{:.0f}", "unit": " MiB"}


def measure(repeat: int) -> list[Row]:
    """Measure time until ready, idle memory, and time from CreateTask to the function's first line."""
    starts = [_run_script("serve_idle.py", "embedded") for _ in range(repeat)]
    outside = Spread.from_values(
        _run_script("serve_idle.py", "kubernetes")["resident"] for _ in range(repeat)
    )
    ready = Spread.from_values(each["seconds"] for each in starts)
    idle = Spread.from_values(each["resident"] for each in starts)
    taken = _run_script("first_line.py", str(3 * repeat))
    embedded, alone = Spread.from_values(taken["embedded"]), Spread.from_values(taken["alone"])
    ratio = Spread.from_values(
        one / other for one, other in zip(taken["embedded"], taken["alone"], strict=True)
    )
    return [
        Row.build_single(
            "kfpytorch serve with an embedded cluster, until it is ready",
            ready.format(unit=" s"),
            READY,
            ready.median,
        ),
        Row.build_single("its memory while idle", idle.format(**_MEMORY), IDLE, idle.median),
        Row.build_single(
            "memory of kfpytorch serve with a Kubernetes cluster while idle",
            outside.format(**_MEMORY),
            IDLE_OUTSIDE,
            outside.median,
        ),
        Row(
            what="from CreateTask to the first line of the user's function",
            ours=embedded.format(unit=" s"),
            against="the same command, started directly",
            theirs=alone.format(unit=" s"),
            compared=ratio.format(pattern="{:.2f}"),
            target=FIRST_LINE.text,
            is_reached=FIRST_LINE.is_reached(ratio.median),
        ),
    ]


def _run_script(script: str, *arguments: str) -> Any:
    print(f"  {script} {' '.join(arguments)}", flush=True)
    return Command(program="python", arguments=(str(SCRIPTS / script), *arguments)).run().printed
