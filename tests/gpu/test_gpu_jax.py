"""Processes of jax use the GPUs that the launcher assigns."""

import ast
from pathlib import Path

import torch

TASKS = Path(__file__).with_name("jax_tasks.py")


def test_processes_of_jax_use_their_gpus(pyflyte):
    gpus = min(2, torch.cuda.device_count())
    ran = pyflyte.run(TASKS, "add", timeout=200)
    assert ran.code == 0, ran.out + ran.err
    platform, devices, total = ast.literal_eval(ran.out.splitlines()[-1])
    assert (platform, int(devices), float(total)) == ("gpu", gpus, gpus)
