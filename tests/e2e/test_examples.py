"""Every example runs with the command in its first lines and prints the expected output."""

import hashlib
import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

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
    ("06_torch_dist", "get_torch_dist"): [": 3 nodes x 2 on this machine", r"^\[r0\] WORLD_SIZE: 6$", "^6$"],
    ("07_images_ddp", "train"): [": 2 nodes x 2 on this machine", r"^\[r0\] Epoch 2 Loss: 0\.", r"^\[0\.\d"],
    ("08_parallelism", "train_with_all"): [": 1 node x 2 on this machine", r"^Losses\(ddp=2\."],
    # 20 steps of 32 samples, none of them twice.
    ("09_streaming", "train"): [": 2 nodes x 2 on this machine", r"^Outcome\(loss=0\.0\d+, samples=640\)$"],
    ("10_fine_tune", "pretrain_and_fine_tune"): [": 1 node x 2 on this machine", r"\(o0=2\.\d+, o1=[23]\."],
}
# The examples whose result does not depend on the number of ranks.
EQUAL_LOSSES = ("07_images_ddp", "08_parallelism", "09_streaming", "10_fine_tune")


def commands():
    """Return the commands in the first lines of each example."""
    return {
        (path.stem, words.split()[0]): words.split()
        for path in NUMBERED
        for words in re.findall(rf"(?m)^    pyflyte run examples/{path.name} (.+)$", path.read_text())
    }


def test_each_example_contains_its_command():
    assert set(commands()) == set(SHOWN)
    assert {name for name, _ in SHOWN} == {path.stem for path in NUMBERED}


@pytest.mark.parametrize(("example", "words"), commands().items(), ids=map("-".join, commands()))
def test_example_prints_the_expected_output(pyflyte, example, words):
    ran = run_example(pyflyte, example[0], words, ranks=8)
    missing = [shown for shown in SHOWN[example] if not re.search(shown, ran.out + ran.err, re.MULTILINE)]
    assert missing == [], ran.out + ran.err
    if example[0] == "06_torch_dist":
        check_output_of_each_rank(ran, pyflyte.home)
    if example[0] == "08_parallelism":
        ddp, *others = read_result(ran)
        assert others == pytest.approx([ddp] * 3, abs=1e-4)


def check_output_of_each_rank(ran, home):
    """Check that the command shows rank 0, and that the log of each rank is as in the published guide."""
    assert set(re.findall(r"^\[r(\d)\]", ran.out + ran.err, re.MULTILINE)) == {"0"}
    (logs,) = home.glob("logs/*")
    assert str(logs) in ran.err.splitlines()[-1]
    for rank in range(6):
        assert (logs / f"rank{rank}.log").read_text().splitlines() == [
            "PyTorch Distributed Environment",
            "Using device: cpu",
            "WORLD_SIZE: 6",
            f"RANK: {rank}",
            f"LOCAL_RANK: {rank % 2}",
        ]


@pytest.mark.soak
@pytest.mark.parametrize("name", EQUAL_LOSSES)
def test_result_does_not_depend_on_the_number_of_ranks(pyflyte, name):
    (words,) = (words for (example, _), words in commands().items() if example == name)
    alone, several = (run_example(pyflyte, name, words, ranks) for ranks in (1, 8))
    assert read_result(alone) == pytest.approx(read_result(several), abs=1e-4)


def run_example(pyflyte, name, words, ranks):
    """Run an example with at most this number of ranks, on the CPU, with a thread for each."""
    env = {"CUDA_VISIBLE_DEVICES": "", "FLYTE_KFPYTORCH_LOCAL": str(ranks), "OMP_NUM_THREADS": "1"}
    ran = pyflyte.run(ROOT / f"examples/{name}.py", *words, timeout=120, **env)
    assert ran.code == 0, ran.err
    return ran


def read_result(ran):
    """Return the numbers of the printed result, such as those of `Outcome(loss=0.25, samples=640)`."""
    return [*map(float, re.findall(r"(?<![\w.])\d+(?:\.\d+)?", ran.out.splitlines()[-1]))]


def test_snippets_of_the_published_guide_are_unchanged():
    snippets = (ROOT / "examples/03_guide_snippets.py").read_text().partition("# fmt: off\n")[2]
    assert hashlib.sha256(snippets.encode()).hexdigest().startswith("38adc16ebe3be691")
