"""The recipes train on a GPU. `make gpu` needs the packages of the recipes for this file."""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest
from e2e.conftest import PYFLYTE

TASKS = Path(__file__).parents[1] / "recipes" / "training.py"


@pytest.mark.timeout(600)
def test_recipes_train_on_a_gpu(tmp_path: Path) -> None:
    from recipes.tiny_model import SAMPLES, save_model

    student, teacher = (
        save_model(tmp_path / name, seed=seed) for seed, name in enumerate(("student", "teacher"))
    )
    models = ["--student", student, "--teacher", teacher, "--folder", tmp_path]
    done = subprocess.run(
        [PYFLYTE, "run", TASKS, "train_all", *models],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(TASKS.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert set(results) == {f"{name}-{kind}" for name in SAMPLES for kind in ("lora", "full")}
    for result in results.values():
        assert len(result["losses"]) == 5
        assert all(map(math.isfinite, result["losses"]))
