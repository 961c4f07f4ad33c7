"""A training step with DistributedDataParallel, on two ranks of gloo: as long as under torchrun."""

from benchmarks.comparison import Pair, Row, Target
from benchmarks.measure import SCRIPTS, Command, Side, in_turn

TARGET = Target(text="1.00 ± 0.02", low=0.98, high=1.02)
# Two hundredths are soon reached by chance.
AT_LEAST = 9
RANKS = "2"
SCRIPT = str(SCRIPTS / "ddp_steps.py")


def measure(repeat: int) -> list[Row]:
    """The ranks themselves time their steps; start and end do not count."""
    torchrun = Command(program="torchrun", arguments=("--standalone", f"--nproc-per-node={RANKS}", SCRIPT))
    ours = Command(program="pyflyte", arguments=("run", SCRIPT, "run"), variables={"RANKS": RANKS})
    sides = [
        Side(name="torchrun", measured=lambda: _step(torchrun)),
        Side(name="ours", measured=lambda: _step(ours)),
    ]
    took = in_turn(sides, max(repeat, AT_LEAST))
    return [
        Pair(
            what="median step of DDP, 2 ranks, gloo",
            ours=took["ours"],
            against="torchrun",
            theirs=took["torchrun"],
            is_short=True,
        ).ratio(TARGET)
    ]


def _step(command: Command) -> float:
    return float(command.run().printed)
