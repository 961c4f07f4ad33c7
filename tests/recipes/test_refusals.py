"""What only TRL or torch can decide is refused before a model is loaded."""

import pytest
import torch

from flytekitplugins.kfpytorch.problems import ConfigError
from flytekitplugins.kfpytorch.recipes import Lora, Training, sft

SAMPLES = [{"text": "red"}]


def test_qlora_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine of the test may have a GPU.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError) as refusal:
        sft("no/model", SAMPLES, Training(output_dir="out", lora=Lora(four_bits=True)))
    assert refusal.value.problems == (
        "four_bits=True: QLoRA needs a GPU; leave it out to train adapters of the unquantized model",
    )


def test_unknown_option_is_rejected() -> None:
    with pytest.raises(TypeError, match="max_lenght"):
        sft("no/model", SAMPLES, Training(output_dir="out", options={"max_lenght": 5}))
