"""A task that runs every recipe, with all weights and with adapters, in the ranks that the test selects."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from flytekit import task
from recipes.tiny_model import SAMPLES

from flytekitplugins.kfpytorch import Elastic, recipes

SHORT = {"max_completion_length": 6}
OPTIONS: dict[str, dict[str, Any]] = {
    "sft": {},
    "dpo": {},
    "kto": {},
    "grpo": {**SHORT, "num_generations": 2},
    "distill": SHORT,
}


def count_vowels(completions: list[str], **_: Any) -> list[float]:
    return [float(sum(text.count(vowel) for vowel in "aeiou")) for text in completions]


MORE = {"grpo": {"reward": count_vowels}}


@task(task_config=Elastic(nnodes=1, nproc_per_node=2))
def train_all(student: str, teacher: str, folder: str) -> str:
    results = {}
    for name in SAMPLES:
        for lora in (None, recipes.Lora(rank=4)):
            key = f"{name}-{'lora' if lora else 'full'}"
            results[key] = train_one(name, lora, student, teacher, Path(folder, key))
    return json.dumps(results)


def train_one(name: str, lora: recipes.Lora | None, student: str, teacher: str, folder: Path) -> dict:
    training = recipes.Training(
        output_dir=str(folder),
        lora=lora,
        max_steps=5,
        batch_size=4,
        learning_rate=1e-2,
        options={"logging_steps": 1, **OPTIONS[name]},
    )
    more: dict[str, Any] = {"distill": {"teacher": teacher}, **MORE}.get(name, {})
    trained = getattr(recipes, name)(student, SAMPLES[name], training, **more)
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    return {
        "losses": trained.losses,
        "trained": trained.trained_parameters,
        "all": trained.parameters,
        "world_size": world_size,
        "threads": torch.get_num_threads(),
    }
