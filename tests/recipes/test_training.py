"""Every recipe trains a tiny model, with all weights and with adapters, in one process and in two.

One local run calls all recipes, one after the other, because the import of TRL takes most of the time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from recipes.tiny_model import SAMPLES, save_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

TASKS = Path(__file__).with_name("training.py")
PYFLYTE = Path(sys.executable).with_name("pyflyte")
# The loss of GRPO is relative to other answers, so it does not fall.
FALLING = ("sft", "dpo", "kto", "distill")

pytestmark = pytest.mark.timeout(600)


class Run:
    """A local run of all recipes."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder, self.ranks = folder, ranks
        self.student = save_model(folder / "student", seed=1)
        models = ["--student", self.student, "--teacher", save_model(folder / "teacher", seed=2)]
        done = subprocess.run(
            [PYFLYTE, "run", TASKS, "train_all", *models, "--folder", folder],
            env={**os.environ, **self.environment},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])

    @property
    def environment(self) -> dict[str, str]:
        """Variables for runs without downloads, with a thread for each rank, on the CPU."""
        return {
            "CUDA_VISIBLE_DEVICES": "",
            "FLYTE_KFPYTORCH_LOCAL": str(self.ranks),
            "FLYTE_KFPYTORCH_LOG_DIR": str(self.folder / "logs"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(TASKS.parents[1]),
        }

    def load_base(self) -> PreTrainedModel:
        return AutoModelForCausalLM.from_pretrained(self.student)


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("recipes"), request.param)


def find_changed(before: torch.nn.Module, after: torch.nn.Module) -> set[str]:
    """Return the names of the parameters that differ between two models."""
    old = dict(before.named_parameters())
    return {name for name, value in after.named_parameters() if not torch.equal(value, old[name])}


def is_falling(losses: list[float]) -> bool:
    return losses[-1] < losses[0]


@pytest.mark.parametrize("name", SAMPLES)
def test_all_weights_are_trained_saved_and_loaded(run: Run, name: str) -> None:
    result = run.results[f"{name}-full"]
    assert (result["world_size"], result["trained"]) == (run.ranks, result["all"])
    assert is_falling(result["losses"]) or name not in FALLING
    saved = run.folder / f"{name}-full"
    assert find_changed(run.load_base(), AutoModelForCausalLM.from_pretrained(saved)) >= {
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
    }
    assert AutoTokenizer.from_pretrained(saved)("say red").input_ids == (
        AutoTokenizer.from_pretrained(run.student)("say red").input_ids
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_only_adapters_are_trained_saved_and_loaded(run: Run, name: str) -> None:
    result = run.results[f"{name}-lora"]
    assert result["world_size"] == run.ranks
    # Two matrices of rank 4 for each of the seven linear layers of both blocks.
    assert result["trained"] == 4352
    assert is_falling(result["losses"]) or name not in FALLING
    saved = run.folder / f"{name}-lora"
    assert [path.name for path in saved.glob("*.safetensors")] == ["adapter_model.safetensors"]
    adapted = PeftModel.from_pretrained(run.load_base(), saved)
    trained = {key: value for key, value in adapted.named_parameters() if "lora_B" in key}
    # This matrix is zero before the training.
    assert len(trained) == 14
    assert all(value.any() for value in trained.values())
