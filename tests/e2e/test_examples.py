"""Every example runs with the command in its first lines and prints the expected output."""

import hashlib
import re
from pathlib import Path

import pytest

from e2e.conftest import Pyflyte

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
NUMBERED = sorted((ROOT / "examples").glob("[0-9]*.py"))


ENOUGH = r"^Score\(accuracy=(0\.9[5-9]\d*|1\.0), loss="
# The required output of each example, in addition to exit code 0.
SHOWN = {
    ("01_digits_elastic", "train"): [
        ": 2 nodes x 2 on this machine",
        r"^\[r0\] training: epoch 20 of 20$",
        ENOUGH,
    ],
    ("02_digits_replicas", "train"): [
        ": 3 replicas on this machine",
        r"^\[r0\] training: epoch 20 of 20$",
        ENOUGH,
    ],
    # The master counts as a replica.
    ("03_guide_snippets", "single_node_wf"): [r": 2 replicas on this machine \(CPU, gloo\)", r"^2\.0$"],
    # The mean of 0, 1, 2, 3 and 4.
    ("03_guide_snippets", "distributed_wf"): [
        ": 5 replicas on this machine",
        "gloo replaces nccl",
        r"^2\.0$",
    ],
    # The number of GPUs that rank 0 detects.
    ("03_guide_snippets", "elastic_training"): [": 2 nodes x 4 on this machine", r"^0\.0$"],
    ("04_checkpoint_resume", "train"): [
        r"^\[r0\] 0 epochs are done\n(.*\n)*\[r0\] 3 epochs are done$",
        r"rank 1 \(node 0\): FlyteRecoverableException: .*: all ranks restart, 0 restart\(s\) left$",
        r"^Outcome\(resumed_after=3, loss=",
    ],
    ("05_pod_template", "both"): [r"o0=2, o1=2"],
}


def commands() -> dict[tuple[str, str], list[str]]:
    """Return the commands in the first lines of each example."""
    return {
        (path.stem, words.split()[0]): words.split()
        for path in NUMBERED
        for words in re.findall(
            rf"^    pyflyte run examples/{path.name} (.+)$", path.read_text(), re.MULTILINE
        )
    }


def test_every_example_says_how_it_is_run() -> None:
    assert set(commands()) == set(SHOWN)
    assert {name for name, _ in SHOWN} == {path.stem for path in NUMBERED}


@pytest.mark.parametrize(("example", "words"), commands().items(), ids=map("-".join, commands()))
def test_an_example_does_what_it_says(pyflyte: Pyflyte, example: tuple[str, str], words: list[str]) -> None:
    # Hide all GPUs and start all ranks, so that the result does not depend on the machine.
    env = {"CUDA_VISIBLE_DEVICES": "", "FLYTE_KFPYTORCH_LOCAL": "8"}
    ran = pyflyte.run(ROOT / f"examples/{example[0]}.py", *words, **env)
    assert ran.code == 0, ran.err
    missing = [shown for shown in SHOWN[example] if not re.search(shown, ran.out + ran.err, re.MULTILINE)]
    assert missing == [], ran.out + ran.err


def test_the_snippets_of_the_published_guide_are_unchanged() -> None:
    snippets = (ROOT / "examples/03_guide_snippets.py").read_text().partition("# fmt: off\n")[2]
    assert hashlib.sha256(snippets.encode()).hexdigest().startswith("38adc16ebe3be691")
