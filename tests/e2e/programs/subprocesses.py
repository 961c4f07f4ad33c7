"""A program that ranks start."""

import subprocess
import sys

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[str]:
    program = f"print({seed} * 2)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return gather(done.stdout.strip())
