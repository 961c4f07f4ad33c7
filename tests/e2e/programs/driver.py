"""Run programs of this folder and print the value of each as a line of JSON.

``driver.py flyte NAME...`` calls the tasks, which start their ranks. ``torchrun driver.py plain NAME`` calls
the function of one program in every rank, without Flyte.
"""

import importlib
import json
import os
import sys

import torch.distributed as dist

SEED = 3


def run(name, way):
    module = importlib.import_module(name)
    if way == "flyte":
        return getattr(module, "main", module.train)(seed=SEED)
    return getattr(module, "plain", module.train.task_function)(SEED)


def main(way, names):
    for name in names:
        try:
            outcome = {"value": run(name, way)}
        except Exception as error:
            if way == "plain":
                raise
            outcome = {"error": f"{type(error).__name__}: {error}"}
        if os.environ.get("RANK", "0") == "0":
            print(f"\n{name} {json.dumps(outcome)}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
