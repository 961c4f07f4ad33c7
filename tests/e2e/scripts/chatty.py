"""Ranks that write much output quickly, in pieces, to both streams."""

import os
import subprocess
import sys
import time

from flytekit import task

from flytekitplugins.kfpytorch import Elastic

RANKS = 4


@task(task_config=Elastic(nnodes=2, nproc_per_node=RANKS // 2))
def flood(lines: int) -> None:
    rank = os.environ["RANK"]
    for start in range(0, lines, 1000):
        block = "".join(f"rank {rank} line {number} end\n" for number in range(start, start + 1000))
        # One write ends within a line, and the next write contains the rest.
        sys.stdout.write(block[:-7])
        sys.stdout.flush()
        sys.stdout.write(block[-7:])


@task(task_config=Elastic(nnodes=1, nproc_per_node=RANKS))
def halves() -> None:
    rank = os.environ["RANK"]
    for number in range(20):
        for piece in (f"rank {rank} ", f"half {number} ", "end\n"):
            os.write(1, piece.encode())
            time.sleep(0.002)
        os.write(2, f"rank {rank} error {number} end\n".encode())
    subprocess.run(["echo", f"rank {rank} child end"], check=True)
    os.write(1, f"rank {rank} no line end".encode())


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def last_words() -> None:
    print(f"rank {os.environ['RANK']} last words")
    os.kill(os.getpid(), 9)
