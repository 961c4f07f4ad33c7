"""Time several sides in turn (A B A B ...), so that other load on the machine affects all of them.

Every run is a new process in an empty directory. A run that leaves a process behind is an error.
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
"""The environment with this plugin and with torchrun."""

Samples = Mapping[int, float]
"""The measured value of each round, by the number of the round."""

# The prefixes of environment variables that change the results, so they are not passed to the programs.
_NOT_OURS: Final = ("FLYTE", "KFPYTORCH", "OMP_", "PET_", "PYTHON", "TORCH")
_MARK: Final = "BENCHMARK_RUN"
_PATIENCE: Final = 10.0


class Invalid(RuntimeError):
    """A run without a valid result: it failed, had a wrong result, or left a process behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the programs that are compared."""

    name: str
    measured: Callable[[], float]
    """Function that runs the program once and returns the time in seconds."""
    every: int = 1
    """The side takes part in every nth round; more than 1 for slow sides without a target."""


def measure_in_turn(sides: Sequence[Side], repeat: int) -> dict[str, Samples]:
    """Measure all sides `repeat` times in turn, after one warm-up run of each.

    Returns:
        The measured value of each round, by the name of the side.
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
    """The result of one run of a command."""

    seconds: float
    printed: Any  # The last line of the output, parsed as JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program in ``bin`` of a virtual environment, with arguments and environment variables."""

    environment: Path = HERE
    program: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def add_variables(self, variables: Mapping[str, str]) -> "Command":
        """Return the same command with more environment variables."""
        return replace(self, variables={**self.variables, **variables})

    def run(self) -> Run:
        """Run the command in an empty directory, and check that it leaves no process.

        Raises:
            Invalid: If the command failed, printed no JSON in its last line or left a process.
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

    def time_run(self, result: Any) -> float:
        """Run the command, and return the time in seconds.

        Raises:
            Invalid: If the command printed something other than `result`, or `run` raised the error.
        """
        run = self.run()
        if run.printed != result:
            raise Invalid(f"{self.program} {' '.join(self.arguments)}: {run.printed!r} instead of {result!r}")
        return run.seconds


def _environment(folder: str) -> dict[str, str]:
    """Return the environment of all sides: one thread per rank, and a directory for temporary files."""
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
