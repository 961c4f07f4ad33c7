"""Every recipe trains a tiny model, with all weights and with adapters, in one process and in two.

One local run calls all recipes, one after the other, because the import of TRL takes most of the time.
Options that only TRL or torch can check are refused before a model is loaded.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from recipes.tiny_model import SAMPLES, train_all
from transformers import AutoModelForCausalLM, AutoTokenizer

from flytekitplugins.kfpytorch.problems import ConfigError
from flytekitplugins.kfpytorch.recipes import Lora, Training, sft

# The loss of GRPO is relative to other answers, so it does not fall.
FALLING = ("sft", "dpo", "kto", "distill")

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Run:
    folder: Path
    ranks: int
    results: dict[str, Any]

    @property
    def student(self):
        return self.folder / "student"

    def load_base(self):
        return AutoModelForCausalLM.from_pretrained(self.student)


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def run(request, tmp_path_factory):
    folder, ranks = tmp_path_factory.mktemp("recipes"), request.param
    # On the CPU, with a thread for each rank.
    env = {"CUDA_VISIBLE_DEVICES": "", "FLYTE_KFPYTORCH_LOCAL": str(ranks), "OMP_NUM_THREADS": "1"}
    env["FLYTE_KFPYTORCH_LOG_DIR"] = str(folder / "logs")
    return Run(folder, ranks, train_all(folder, **env))


def find_changed(before, after):
    """Return the names of the parameters that differ between two models."""
    old = dict(before.named_parameters())
    return {name for name, value in after.named_parameters() if not torch.equal(value, old[name])}


def is_falling(losses):
    return losses[-1] < losses[0]


@pytest.mark.parametrize("name", SAMPLES)
def test_all_weights_are_trained_saved_and_loaded(run, name):
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
def test_only_adapters_are_trained_saved_and_loaded(run, name):
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


def test_qlora_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # The machine of the test may have a GPU.
    with pytest.raises(ConfigError) as refusal:
        sft("no/model", SAMPLES["sft"], Training(output_dir="out", lora=Lora(four_bits=True)))
    assert refusal.value.problems == (
        "four_bits=True: QLoRA needs a GPU; leave it out to train adapters of the unquantized model",
    )


def test_unknown_option_is_rejected():
    with pytest.raises(TypeError, match="max_lenght"):
        sft("no/model", SAMPLES["sft"], Training(output_dir="out", options={"max_lenght": 5}))
