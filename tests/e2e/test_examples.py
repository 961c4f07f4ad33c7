"""Every example runs with the command in its first lines and prints the expected output."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from e2e.conftest import PYFLYTE, Pyflyte

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
NUMBERED = sorted((ROOT / "examples").glob("[0-9]*.py"))

POD_OF_EACH_TASK = """
import importlib, json
from collections import OrderedDict
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable

example = importlib.import_module("examples.05_pod_template")
settings = SerializationSettings(image_config=ImageConfig(Image("default", "image", "tag")))
for task in (example.train_on_replicas, example.train_elastically):
    pod = get_serializable(OrderedDict(), settings, task).template.k8s_pod.pod_spec
    for container in pod["containers"]:
        del container["args"], container["command"], container["env"]
    print(json.dumps(pod))
"""


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
    ("03_guide_snippets", "single_node_wf"): [": 2 replicas on this machine", r"^2\.0$"],
    ("03_guide_snippets", "distributed_wf"): [r"^2\.0$"],
    ("03_guide_snippets", "elastic_training"): [r"^\d\.0$"],
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
    ran = pyflyte.run(ROOT / f"examples/{example[0]}.py", *words, FLYTE_KFPYTORCH_LOCAL="8")
    assert ran.code == 0, ran.err
    missing = [shown for shown in SHOWN[example] if not re.search(shown, ran.out + ran.err, re.MULTILINE)]
    assert missing == [], ran.out + ran.err


def test_too_little_training_is_a_failure(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(ROOT / "examples/01_digits_elastic.py", "train", "--epochs", "1")
    assert ran.code == 1
    assert re.search(r"ValueError: accuracy [\d.]+% after 1 epochs is under 95%", ran.report[1]), ran.err


def test_a_terminal_shows_a_bar_of_rank_0() -> None:
    command = f"{PYFLYTE} run examples/01_digits_elastic.py train"
    terminal = pexpect.spawn(command, cwd=str(ROOT), dimensions=(24, 100), encoding="utf-8", timeout=100)
    shown = str(terminal.read())
    bars = re.findall(r"\[r(\d)\] training .*?━+.*?(\d+)%", shown)
    assert bars[0] == ("0", "0"), shown
    assert bars[-1] == ("0", "100"), shown
    assert re.search(ENOUGH, shown, re.MULTILINE)


def test_a_pod_may_be_a_dict_or_models_and_gets_shared_memory() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", POD_OF_EACH_TASK], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ).stdout
    expected = {
        "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        "containers": [
            {
                "name": "trainer",
                "image": "image:tag",
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": "20Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    assert [json.loads(line) for line in printed.splitlines()] == [expected, expected]
