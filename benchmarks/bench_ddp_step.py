"""Compare a DistributedDataParallel training step on two gloo ranks with torchrun; both should be equal."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.comparison import Pair, Row, Target
from benchmarks.measure import SCRIPTS, Command, Samples

TARGET = Target(text="1.00 ± 0.02", low=0.98, high=1.02)
# The number of turns of each side, for each round of ``--repeat``. The speed of a machine drifts by
# more than 2 % in a minute, so the sides alternate every half second.
TURNS = 12
RANKS = "2"
SCRIPT = str(SCRIPTS / "ddp_steps.py")
SIDES = {
    "torchrun": Command(program="torchrun", arguments=("--standalone", f"--nproc-per-node={RANKS}", SCRIPT)),
    "ours": Command(program="pyflyte", arguments=("run", SCRIPT, "run")),
}


def measure(repeat: int) -> list[Row]:
    """Measure steps, timed in the ranks, without start and end."""
    took = _in_turns(repeat * TURNS)
    return [
        Pair(
            what="median step of DDP, 2 ranks, gloo",
            ours=took["ours"],
            against="torchrun",
            theirs=took["torchrun"],
            is_short=True,
        ).build_ratio_row(TARGET)
    ]


def _in_turns(turns: int) -> dict[str, Samples]:
    """Run both sides in parallel; one trains while the other waits for its turn."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, ThreadPoolExecutor() as threads:
        pipes = {name: Path(folder, name) for name in SIDES}
        for pipe in pipes.values():
            os.mkfifo(pipe)
        opened = {name: os.open(pipe, os.O_RDWR) for name, pipe in pipes.items()}

        def run(name: str, after: str) -> Samples:
            variables = {
                "TURNS": str(turns),
                "MINE": str(pipes[name]),
                "THEIRS": str(pipes[after]),
                "RANKS": RANKS,
            }
            try:
                return dict(enumerate(SIDES[name].add_variables(variables).run().printed))
            finally:
                os.write(opened[after], b"." * turns)  # If this side failed, the other must not wait for it.

        ran = {
            "torchrun": threads.submit(run, "torchrun", "ours"),
            "ours": threads.submit(run, "ours", "torchrun"),
        }
        os.write(opened["torchrun"], b".")
        return {name: each.result() for name, each in ran.items()}
