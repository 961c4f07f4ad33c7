import subprocess
import sys
from typing import Any

import pytest

from flytekitplugins.kfpytorch import recipes
from flytekitplugins.kfpytorch.problems import ConfigError

OUT = {"output_dir": "out"}
OPTIONS = {"lora_r": 8, "use_peft": True, "num_train_epochs": 3}


@pytest.mark.parametrize(
    ("build", "values", "problems"),
    [
        (recipes.Lora, {"rank": 0, "alpha": False, "dropout": 1.0}, ["rank=0", "alpha=False", "dropout=1.0"]),
        (recipes.Training, {"output_dir": "", "batch_size": 0}, ["output_dir=''", "batch_size=0"]),
        (recipes.Training, {**OUT, "max_steps": -1}, ["max_steps=-1"]),
        (recipes.Training, {**OUT, "batch_size": "8", "epochs": "1"}, ["batch_size='8'", "epochs='1'"]),
        (recipes.Lora, {"dropout": None}, ["dropout=None"]),
        (recipes.Training, {**OUT, "epochs": 0, "learning_rate": -1.0}, ["epochs=0", "learning_rate=-1.0"]),
        # The remedy is the field of `Training`.
        (recipes.Training, {**OUT, "options": OPTIONS}, [f"options={option!r}" for option in OPTIONS]),
    ],
)
def test_all_invalid_values_are_reported(build, values, problems) -> None:
    with pytest.raises(ConfigError) as refusal:
        build(**values)
    assert [each.partition(":")[0] for each in refusal.value.problems] == problems


TRAINING = recipes.Training(output_dir="out")
COLUMNS = {
    "sft": "SFT needs 'messages', or 'prompt' and 'completion', or 'text'",
    "dpo": "DPO needs 'chosen' and 'rejected'",
    "kto": "KTO needs 'prompt' and 'completion' and 'label'",
    "grpo": "GRPO needs 'prompt'",
    "distill": "Distillation needs 'prompt'",
}
MORE: dict[str, dict[str, Any]] = {"grpo": {"reward": len}, "distill": {"teacher": "teacher"}}


@pytest.mark.parametrize(("name", "required"), COLUMNS.items(), ids=COLUMNS)
def test_a_dataset_with_other_columns_is_refused(name: str, required: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        getattr(recipes, name)("model", [{"question": "?"}], TRAINING, **MORE.get(name, {}))
    assert refusal.value.problems == (f"columns=['question']: {required}",)


def test_a_text_column_may_have_another_name() -> None:
    training = recipes.Training(output_dir="out", options={"dataset_text_field": "page"})
    with pytest.raises(ConfigError) as refusal:
        recipes.sft("model", [{"prompt": "say red", "completion": "red"}], training)
    assert refusal.value.problems == ("columns=['completion', 'prompt']: SFT needs 'page'",)


@pytest.mark.parametrize(("name", "instead"), [("ppo", "use grpo"), ("torchtune", "use sft")])
def test_a_recipe_that_does_not_exist_names_another(name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=instead):
        getattr(recipes, name)


# Runs in an interpreter without TRL. An uncaught exception would be printed by flytekit's own hook.
WITHOUT_TRL = """
import sys
sys.modules["trl"] = None
from flytekitplugins.kfpytorch import recipes
print(sorted({"torch", "transformers", "datasets", "peft"} & set(sys.modules)))
try:
    recipes.sft("model", [{"text": "a"}], recipes.Training(output_dir="out"))
except ImportError as error:
    print(error)
"""


def test_the_package_loads_nothing_and_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRL], check=True, stdout=subprocess.PIPE, text=True)
    loaded, refusal = done.stdout.splitlines()
    assert loaded == "[]"
    assert "pip install 'flytekitplugins-kfpytorch[finetune]'" in refusal
