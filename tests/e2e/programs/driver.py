"""Run a program of this folder and print its value as a line of JSON.

``driver.py flyte NAME`` calls the task, which starts its ranks. ``torchrun driver.py plain NAME`` calls its
function in every rank, without Flyte.
"""

import importlib
import json
import os
import sys

import torch.distributed as dist

SEED = 3


def main(way, name):
    module = importlib.import_module(name)
    if way == "flyte":
        value = getattr(module, "main", module.train)(seed=SEED)
    else:
        value = getattr(module, "plain", module.train.task_function)(SEED)
    if os.environ.get("RANK", "0") == "0":
        print(f"\n{name} {json.dumps(value)}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
