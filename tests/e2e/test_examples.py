"""Every example runs as its first lines say, and shows what they promise."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from command import PYFLYTE, ROOT, pyflyte_run

pytestmark = pytest.mark.torch

NUMBERED = sorted((ROOT / "examples").glob("[0-9]*.py"))
COMMAND = re.compile(r"^    pyflyte run (examples/\S+\.py) (.+)$", re.MULTILINE)

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


def commands() -> list["pytest.param"]:
    return [
        pytest.param(script, words.split(), id=f"{Path(script).stem}-{words.split()[0]}")
        for path in NUMBERED
        for script, words in COMMAND.findall(path.read_text())
    ]


def accuracy(output: str) -> float:
    found = re.search(r"^Score\(accuracy=([\d.]+), loss=[\d.]+\)", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def test_every_example_says_how_it_is_run() -> None:
    assert {script for script, _ in (param.values for param in commands())} == {
        str(path.relative_to(ROOT)) for path in NUMBERED
    }


@pytest.mark.parametrize(("script", "words"), commands())
def test_an_example_runs_as_it_says(script: str, words: list[str], tmp_path: Path) -> None:
    done = pyflyte_run(script, *words, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "kfpytorch  done in" in done.stdout


@pytest.mark.parametrize(
    ("name", "layout"), [("01_digits_elastic", "2 nodes x 2"), ("02_digits_replicas", "3 replicas")]
)
def test_digits_are_learnt_on_all_ranks(name: str, layout: str) -> None:
    done = pyflyte_run(f"examples/{name}.py", "train")
    assert f"kfpytorch  examples.{name}.train: {layout} on this machine" in done.stdout
    assert "[r0] training: epoch 20 of 20" in done.stdout
    assert accuracy(done.stdout) >= 0.95


def test_too_little_training_is_a_failure() -> None:
    done = pyflyte_run("examples/01_digits_elastic.py", "train", "--epochs", "1")
    assert done.returncode == 1
    assert re.search(r"ValueError: accuracy [\d.]+% after 1 epochs is under 95%", done.stdout), done.stdout


def test_a_terminal_shows_a_bar_of_rank_0() -> None:
    words = ["run", "examples/01_digits_elastic.py", "train"]
    terminal = pexpect.spawn(
        PYFLYTE, words, cwd=str(ROOT), dimensions=(24, 100), encoding="utf-8", timeout=100
    )
    shown = str(terminal.read())
    bars = re.findall(r"\[r(\d)\] training .*?━+.*?(\d+)%", shown)
    assert bars[0] == ("0", "0"), shown
    assert bars[-1] == ("0", "100"), shown
    assert accuracy(shown.replace("\r", "")) >= 0.95


def test_training_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    script = "examples/04_checkpoint_resume.py"
    done = pyflyte_run(script, "train", "--epochs", "5", "--breaks_after", "2", "--folder", str(tmp_path))
    assert "rank 1 failed with FlyteRecoverableException: all ranks restart" in done.stdout
    started = [line for line in done.stdout.splitlines() if "epochs are done" in line]
    assert started == ["[r0] 0 epochs are done", "[r0] 2 epochs are done"]
    assert "Outcome(resumed_after=2, " in done.stdout


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
