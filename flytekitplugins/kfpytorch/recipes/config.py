"""The validated settings and the result of a fine-tuning recipe: `Training`, `Lora` and `Trained`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from flytekitplugins.kfpytorch.problems import ConfigProblem, require_valid


def _is_number(value: object, above: float = float("-inf")) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > above


def _check_at_least_one(**values: float) -> Iterator[ConfigProblem]:
    for name, value in values.items():
        if not (_is_number(value) and value >= 1):
            yield ConfigProblem(name, value, "must be a number of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Train low-rank adapters instead of all weights.

    Args:
        rank: The rank of the matrices of an adapter.
        alpha: The scale of an adapter; its output is multiplied by ``alpha / rank``.
        dropout: The share of an adapter's inputs that is set to 0 at random in the training.
        target_modules: The names of the layers that get an adapter, or ``"all-linear"``.
        four_bits: Load the model with four bits per weight (QLoRA). It needs a GPU and bitsandbytes.
    """

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    target_modules: str | list[str] = "all-linear"
    four_bits: bool = False

    def __post_init__(self) -> None:
        require_valid("Lora", self._check())

    def _check(self) -> Iterator[ConfigProblem]:
        yield from _check_at_least_one(rank=self.rank, alpha=self.alpha)
        if not (_is_number(self.dropout) and 0 <= self.dropout < 1):
            yield ConfigProblem("dropout", self.dropout, "must be at least 0 and less than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The settings of a training. ``learning_rate`` defaults to TRL's value for the recipe.

    Args:
        output_dir: The directory for the model, or for the adapters with `lora`. Rank 0 writes it.
        lora: The adapters to train. Default: all weights are trained.
        epochs: The number of passes over the data.
        max_steps: The number of steps, instead of ``epochs``. A dataset without a length needs it.
        batch_size: The number of samples of each rank in a step.
        learning_rate: The highest learning rate.
        seed: The seed of the adapters and of the order of the samples.
        options: Further arguments of TRL's config of the recipe, such as ``{"beta": 0.1}`` for `dpo`.
    """

    output_dir: str
    lora: Lora | None = None
    epochs: float = 1.0
    max_steps: int | None = None
    batch_size: int = 8
    learning_rate: float | None = None
    seed: int = 42
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_valid("Training", self._check())

    def _check(self) -> Iterator[ConfigProblem]:
        if not self.output_dir:
            yield ConfigProblem("output_dir", self.output_dir, "must be the path of a directory")
        yield from _check_at_least_one(batch_size=self.batch_size)
        if self.max_steps is not None:
            yield from _check_at_least_one(max_steps=self.max_steps)
        for name, value in (("epochs", self.epochs), ("learning_rate", self.learning_rate)):
            if value is not None and not _is_number(value, above=0):
                yield ConfigProblem(name, value, "must be a number above 0")
        yield from self._check_options()

    def _check_options(self) -> Iterator[ConfigProblem]:
        for name in self.options:
            if name in _TYPED:
                yield ConfigProblem("options", name, f"set Training({_TYPED[name]}=…) instead")
            elif name.startswith("lora_") or name in ("peft_config", "use_peft"):
                yield ConfigProblem("options", name, "set Training(lora=Lora(…)) instead")

    def build_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for TRL's config class."""
        named = {argument: getattr(self, name) for argument, name in _TYPED.items()}
        return {**{key: value for key, value in named.items() if value is not None}, **self.options}


# The fields of `Training` by the names of the arguments of TRL's config classes.
_TYPED: Final = {
    "output_dir": "output_dir",
    "num_train_epochs": "epochs",
    "max_steps": "max_steps",
    "per_device_train_batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "seed": "seed",
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The result of a recipe, equal on every rank.

    Attributes:
        output_dir: The directory with the model or the adapters, and the tokenizer.
        losses: The losses that TRL logged, in the order of the steps.
        trained_parameters: The number of parameters that were trained.
        parameters: The number of all parameters.
    """

    output_dir: str
    losses: list[float]
    trained_parameters: int
    parameters: int
