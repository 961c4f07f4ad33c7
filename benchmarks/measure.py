"""Several sides timed in turn (A B A B ...), so that whatever else the machine does hits all alike.

Every run is a fresh process that starts cold: nothing of an earlier run may still be there.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psutil

SCRIPTS: Final = Path(__file__).with_name("scripts")
HERE: Final = Path(sys.prefix)
"""The environment with our plugin and with torchrun."""

Samples = Mapping[int, float]
"""What was measured in each round."""

# They change what is measured, so those of whoever runs the benchmark do not count.
_NOT_OURS: Final = ("FLYTE", "KFPYTORCH", "OMP_", "PET_", "PYTHON", "TORCH")
_MARK: Final = "BENCHMARK_RUN"
_PATIENCE: Final = 10.0


class Invalid(RuntimeError):
    """A run that shows nothing: it failed, had a wrong result, or left a process behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the things that are compared."""

    name: str
    measured: Callable[[], float]
    """Runs it once; the figure in seconds."""
    every: int = 1
    """It takes part in every so many rounds; more than 1 for what is slow and has no target."""


def in_turn(sides: Sequence[Side], repeat: int) -> dict[str, Samples]:
    """Measure all sides `repeat` times in turn, after one run of each that does not count.

    Returns:
        For each side, by its name, what was measured in each round.
    """
    for side in sides:
        _progress("warm-up", side, side.measured())
    samples: dict[str, dict[int, float]] = {side.name: {} for side in sides}
    for number in range(repeat):
        for side in sides:
            if number % side.every == 0:
                samples[side.name][number] = side.measured()
                _progress(f"{number + 1}/{repeat}", side, samples[side.name][number])
    return dict(samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a command went."""

    seconds: float
    printed: Any  # The last line, which is JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program of an environment, and what it is given."""

    environment: Path = HERE
    program: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def with_variables(self, variables: Mapping[str, str]) -> "Command":
        """The same with more variables in its environment."""
        return replace(self, variables={**self.variables, **variables})

    def run(self) -> Run:
        """Run it in an empty directory, and see that no process is left.

        Raises:
            Invalid: It failed, printed no result or left a process.
        """
        mark = uuid.uuid4().hex
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            env = {**_environment(folder), **self.variables, _MARK: mark}
            command = [str(self.environment / "bin" / self.program), *self.arguments]
            began = time.perf_counter()
            done = subprocess.run(
                command,
                cwd=folder,
                env=env,
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
            )
            seconds = time.perf_counter() - began
            _check_none_left(mark)
        try:
            done.check_returncode()
            return Run(seconds=seconds, printed=json.loads(done.stdout.splitlines()[-1]))
        except (subprocess.CalledProcessError, json.JSONDecodeError, IndexError) as error:
            raise Invalid(f"{' '.join(command)}: {error}\n{done.stdout}{done.stderr}") from error

    def seconds(self, result: Any) -> float:
        """Run it; how long that took.

        Raises:
            Invalid: It printed something else than `result`.
        """
        run = self.run()
        if run.printed != result:
            raise Invalid(f"{self.program} {' '.join(self.arguments)}: {run.printed!r} instead of {result!r}")
        return run.seconds


def _environment(folder: str) -> dict[str, str]:
    """What all sides are given: one thread for each rank, and a place for passing files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(SCRIPTS),
        "TMPDIR": folder,
        "XDG_STATE_HOME": folder,
    }


def _check_none_left(mark: str) -> None:
    given_up = time.monotonic() + _PATIENCE
    while left := [process for process in psutil.process_iter() if _is_of(process, mark)]:
        if time.monotonic() > given_up:
            raise Invalid(f"left running: {left}")
        time.sleep(0.05)


def _is_of(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.AccessDenied, psutil.NoSuchProcess, OSError):
        return False


def _progress(which: str, side: Side, seconds: float) -> None:
    print(f"  {which:>7}  {side.name}: {seconds:.4f} s", flush=True)
