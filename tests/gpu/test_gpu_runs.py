"""Local runs on a GPU: devices of the ranks, nccl, failures, and memory that is free afterwards."""

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from backend_plugin.doctor.burn_in import program
from e2e.test_examples import ROOT, SHOWN, commands, read_result

TASKS = Path(__file__).with_name("gpu_tasks.py")


def call(pyflyte, name, **env):
    ran = pyflyte.run(TASKS, name, timeout=200, **env)
    assert ran.code == 0, ran.err
    assert pyflyte.left() == ([], [])
    return ran


def value(ran):
    return ast.literal_eval(ran.out.splitlines()[-1])


def query_gpus(query, *options):
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def get_used_memory():
    """Return the used memory of the first GPU in MiB."""
    return int(query_gpus("gpu=memory.used", "-i", "0"))


def test_each_gpu_gets_a_rank_and_nccl_connects_them(pyflyte):
    ranks = torch.cuda.device_count()
    ran = call(pyflyte, "one_per_gpu")
    assert value(ran) == [str(ranks), "nccl", torch.cuda.get_device_name(0)]
    assert f": 1 node x {ranks} on this machine (GPU " in ran.err
    assert "gloo replaces nccl" not in ran.err


def test_fork_of_the_caller_can_use_cuda(pyflyte):
    assert value(call(pyflyte, "forked")) == ["1", "nccl", torch.cuda.get_device_name(0)]


def test_replicas_are_scaled_down_to_the_gpus(pyflyte):
    ranks = min(4, torch.cuda.device_count())
    ran = call(pyflyte, "replicas")
    assert value(ran) == [str(ranks), "nccl", torch.cuda.get_device_name(0)]
    assert ranks == 4 or f"4 ranks scaled down to {ranks}: this machine has {ranks} GPU(s)" in ran.err


def test_ranks_of_gloo_share_a_gpu(pyflyte):
    result = value(call(pyflyte, "shared", CUDA_VISIBLE_DEVICES="0"))
    assert result == ["4", "gloo", torch.cuda.get_device_name(0)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hidden", ["False", "gloo"]),
        ("restarted", 1),
        ("loaded", sum(range(64))),
        ("pass_weights", ["cuda", "6.0"]),
    ],
    ids=["hidden GPU", "restart", "data loader with pinned memory", "tensor for the next task"],
)
def test_task_returns_its_result(pyflyte, name, expected):
    assert value(call(pyflyte, name)) == expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [("too_large", ["oom-gpu", "OutOfMemoryError", "gpu_tasks.py"]), ("bad_index", ["device-side assert"])],
)
def test_failure_on_a_gpu_is_reported(pyflyte, name, shown):
    ran = pyflyte.run(TASKS, name, timeout=200)
    assert ran.code == 1
    report = "\n".join(ran.report)
    assert [text for text in shown if text not in report] == [], ran.err
    assert pyflyte.left() == ([], [])


def test_two_ranks_of_nccl_on_one_gpu_fail_with_the_message_of_nccl(pyflyte):
    ran = pyflyte.run(TASKS, "two_on_one", CUDA_VISIBLE_DEVICES="0", FLYTE_KFPYTORCH_LOCAL="2", timeout=200)
    assert ran.code == 1
    report = "\n".join(ran.report)
    assert "Duplicate GPU detected" in report, ran.err
    assert "nccl needs a GPU for each rank" in report


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT], ids=lambda each: each.name)
def test_memory_is_free_after_the_caller_is_stopped(pyflyte, tmp_path, signum):
    before = get_used_memory()
    started = pyflyte.start(TASKS, "holds_memory", READY=str(tmp_path / "ready"))
    deadline = time.monotonic() + 120
    while not (tmp_path / "ready").exists():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert get_used_memory() >= before + 1024
    started.send_signal(signum)
    started.communicate(timeout=30)
    assert pyflyte.left() == ([], [])
    while get_used_memory() > before:
        assert time.monotonic() < deadline, query_gpus("compute-apps=pid")
        time.sleep(0.05)


# The task of the published guide reduces a tensor on the CPU, which nccl does not support.
REFUSED = ("03_guide_snippets", "distributed_wf")


def test_tensor_on_the_cpu_is_refused_by_nccl_with_a_remedy(pyflyte):
    ran = pyflyte.run(ROOT / f"examples/{REFUSED[0]}.py", *commands()[REFUSED], timeout=280)
    assert ran.code == 1
    assert "nccl reduces only tensors on a GPU" in "\n".join(ran.report), ran.err


EXAMPLES = {name: words for name, words in commands().items() if name != REFUSED}


@pytest.mark.parametrize(("example", "words"), EXAMPLES.items(), ids=map("-".join, EXAMPLES))
def test_example_runs_on_the_gpu(pyflyte, example, words):
    ran = pyflyte.run(ROOT / f"examples/{example[0]}.py", *words, timeout=280)
    assert ran.code == 0, ran.out + ran.err
    if example[0] == "08_parallelism":
        ddp, *others = read_result(ran)
        assert others == pytest.approx([ddp] * 3, abs=1e-2)
    assert "gloo replaces nccl" not in ran.err
    if example[0] in {"07_images_ddp", "09_streaming"}:
        assert re.search(SHOWN[example][-1], ran.out, re.MULTILINE), ran.out


def test_burn_in_measures_nccl():
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, program.__file__, "60"],
        env={**os.environ, **address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"backend": "nccl"' in done.stdout
    assert torch.cuda.get_device_name(0) in done.stdout
