"""A notebook task, with its source only in this process. Prints the traceback that IPython shows."""

import linecache
import sys

NAME = "/nowhere/cell-1.py"
CELL = """
from flytekit import task
from flytekitplugins.kfpytorch import Elastic

@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train() -> None:
    raise ValueError("no data")
"""
linecache.cache[NAME] = (len(CELL), None, CELL.splitlines(keepends=True), NAME)
notebook = sys.modules["__main__"]  # The main module of a notebook has no file.
del notebook.__file__
notebook.__spec__ = None
exec(compile(CELL, NAME, "exec"), vars(notebook))
try:
    notebook.train()
except Exception as error:  # noqa: BLE001 - IPython catches it as well.
    print("\n".join(error._render_traceback_()))
