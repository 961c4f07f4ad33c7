"""The two compared programs, as processes that read and write JSON lines."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from dice import Json

ROOT = Path(__file__).parents[2]
KFPYTORCH = "from backend_plugin.cli import main; main()"


def query_peer(command: Sequence[str | Path], lines: Iterable[Json]) -> list[Json]:
    """Run a command on JSON lines and return one result per line, in the same order."""
    asked = list(lines)
    text = "".join(json.dumps(line) + "\n" for line in asked)
    done = subprocess.run(
        [str(part) for part in command], input=text, capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if [answer.get("id") for answer in answers] != [line["id"] for line in asked]:
        raise RuntimeError(f"{command} did not answer line by line:\n{done.stderr[-4000:]}")
    return answers


def render(lines: Iterable[Json]) -> list[Json]:
    """Return our rendered plan for each line."""
    return query_peer([sys.executable, "-c", KFPYTORCH, "render", "--batch"], lines)
