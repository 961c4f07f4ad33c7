"""Recipes for the fine-tuning of language models, on Hugging Face's TRL. A task calls them in every rank.

The extra ``finetune`` installs TRL. Importing this package loads neither TRL nor torch.
"""

from typing import Final, NoReturn

from flytekitplugins.kfpytorch.recipes.config import Lora, Trained, Training
from flytekitplugins.kfpytorch.recipes.methods import distill, dpo, grpo, kto, sft

__all__ = ["Lora", "Trained", "Training", "distill", "dpo", "grpo", "kto", "sft"]

_REFUSED: Final = {
    "ppo": "TRL has no PPO trainer any more; use grpo, which needs a reward function and no value model",
    "torchtune": "torchtune is not developed any more; use sft, with Lora for adapters, or distill",
}


def __getattr__(name: str) -> NoReturn:
    """Raise an error for an unknown name. For names such as ``ppo``, the message suggests another recipe."""
    if name in _REFUSED:
        raise ImportError(f"there is no recipe {name!r}: {_REFUSED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
