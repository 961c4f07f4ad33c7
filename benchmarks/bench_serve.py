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
    starts = [_printed("serve_idle.py", "embedded") for _ in range(repeat)]
    outside = Spread.of(_printed("serve_idle.py", "kubernetes")["resident"] for _ in range(repeat))
    ready = Spread.of(each["seconds"] for each in starts)
    idle = Spread.of(each["resident"] for each in starts)
    taken = _printed("first_line.py", str(3 * repeat))
    embedded, alone = Spread.of(taken["embedded"]), Spread.of(taken["alone"])
    ratio = Spread.of(one / other for one, other in zip(taken["embedded"], taken["alone"], strict=True))
    return [
        Row.alone(
            "kfpytorch serve with an embedded cluster, until it is ready",
            ready.text(unit=" s"),
            READY,
            ready.median,
        ),
        Row.alone("its memory while idle", idle.text(**_MEMORY), IDLE, idle.median),
        Row.alone(
            "memory of kfpytorch serve with a Kubernetes cluster while idle",
            outside.text(**_MEMORY),
            IDLE_OUTSIDE,
            outside.median,
        ),
        Row(
            what="from CreateTask to the first line of the user's function",
            ours=embedded.text(unit=" s"),
            against="the same command, started directly",
            theirs=alone.text(unit=" s"),
            compared=ratio.text(pattern="{:.2f}"),
            target=FIRST_LINE.text,
            is_reached=FIRST_LINE.is_reached(ratio.median),
        ),
    ]


def _printed(script: str, *arguments: str) -> Any:
    print(f"  {script} {' '.join(arguments)}", flush=True)
    return Command(program="python", arguments=(str(SCRIPTS / script), *arguments)).run().printed
