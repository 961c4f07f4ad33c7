"""The fine-tuning recipes, such as `sft`: functions that every rank of a task calls with equal arguments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from flytekitplugins.kfpytorch.problems import ConfigProblem, require_valid
from flytekitplugins.kfpytorch.recipes.config import Lora, Trained, Training

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Model: TypeAlias = str | PreTrainedModel
    Samples: TypeAlias = Dataset | IterableDataset | Sequence[Mapping[str, Any]]
    Tokenizer: TypeAlias = PreTrainedTokenizerBase

Reward: TypeAlias = Callable[..., Sequence[float]]


_COLUMNS: Final = {
    "SFT": (("messages",), ("prompt", "completion"), ("text",)),
    "DPO": (("chosen", "rejected"),),
    "GRPO": (("prompt",),),
    "KTO": (("prompt", "completion", "label"),),
    "Distillation": (("prompt",),),
}
"""The columns that each training method needs: a dataset must have all columns of one of the listed sets.

A key is the first part of two class names of TRL, such as ``SFT`` for ``SFTTrainer`` and ``SFTConfig``.
"""


def sft(
    model: "Model", dataset: "Samples", training: Training, *, tokenizer: "Tokenizer | None" = None
) -> Trained:
    """Train with examples of good answers (supervised fine-tuning).

    Args:
        model: The path or the Hub id of a causal language model, or the model.
        dataset: Samples with ``messages``, with ``prompt`` and ``completion``, or with ``text``.
        training: The settings of the training.
        tokenizer: Default: that of the model.

    Raises:
        ConfigError: If the dataset does not fit this recipe.
        TypeError: If ``training.options`` has a name that TRL's config class of this recipe does not have.
    """
    return _train("SFT", training, dataset, model=model, processing_class=tokenizer)


def dpo(
    model: "Model", dataset: "Samples", training: Training, *, tokenizer: "Tokenizer | None" = None
) -> Trained:
    """Train with pairs of a better and a worse answer (direct preference optimization).

    The arguments are those of `sft`. Samples have ``chosen`` and ``rejected``, and usually ``prompt``.
    """
    return _train("DPO", training, dataset, model=model, processing_class=tokenizer)


def kto(
    model: "Model", dataset: "Samples", training: Training, *, tokenizer: "Tokenizer | None" = None
) -> Trained:
    """Train with answers that are marked as good or bad (Kahneman-Tversky optimization).

    The arguments are those of `sft`. Samples have ``prompt``, ``completion`` and ``label``, a bool.
    """
    return _train("KTO", training, dataset, model=model, processing_class=tokenizer)


def grpo(
    model: "Model",
    dataset: "Samples",
    training: Training,
    *,
    reward: Reward | list[Reward],
    tokenizer: "Tokenizer | None" = None,
) -> Trained:
    """Train with a reward for answers that the model generates (group relative policy optimization).

    The arguments are those of `sft`. Samples have ``prompt``. Each function in `reward` is called with the
    keywords ``prompts``, ``completions`` and the other columns, and returns one number for each completion.
    """
    return _train("GRPO", training, dataset, model=model, processing_class=tokenizer, reward_funcs=reward)


def distill(
    model: "Model",
    dataset: "Samples",
    training: Training,
    *,
    teacher: "Model",
    tokenizer: "Tokenizer | None" = None,
) -> Trained:
    """Train a small model to predict the tokens of a larger one, on answers that the small one generates.

    The arguments are those of `sft`. Samples have ``prompt``. `teacher` and `model` have the same vocabulary.
    """
    return _train(
        "Distillation", training, dataset, model=model, processing_class=tokenizer, teacher_model=teacher
    )


def _train(method: str, training: Training, dataset: "Samples", **arguments: Any) -> Trained:
    require_valid("dataset", _check_columns(method, dataset, training))
    trl = _import_trl()
    import torch
    from datasets import Dataset

    has_gpu = torch.cuda.is_available()
    arguments |= _build_adapter(training.lora, arguments["model"], has_gpu=has_gpu)
    config = getattr(trl, f"{method}Config")
    # No checkpoints: the model is saved once, after the training. TRL's default bfloat16 is slow on a CPU.
    defaults = {
        "save_strategy": "no",
        "use_cpu": not has_gpu,
        "bf16": has_gpu and torch.cuda.is_bf16_supported(),
    }
    options = config(**{**defaults, **training.build_arguments()})
    if isinstance(dataset, Sequence):
        dataset = Dataset.from_list([*dataset])
    trainer = getattr(trl, f"{method}Trainer")(args=options, train_dataset=dataset, **arguments)
    trainer.train(resume_from_checkpoint=options.resume_from_checkpoint)
    trainer.save_model()
    trainer.accelerator.wait_for_everyone()
    return _read_result(trainer, training)


def _read_result(trainer: Any, training: Training) -> Trained:
    sizes = [(each.numel(), each.requires_grad) for each in trainer.model.parameters()]
    return Trained(
        output_dir=training.output_dir,
        losses=[entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        trained_parameters=sum(size for size, is_trained in sizes if is_trained),
        parameters=sum(size for size, _ in sizes),
    )


def _import_trl() -> Any:
    try:
        import trl
    except ImportError as error:
        remedy = "pip install 'flytekitplugins-kfpytorch[finetune]', with Python 3.11 or newer"
        raise ImportError(f"the recipes need TRL ({error}); install it: {remedy}") from error
    return trl


def _check_columns(method: str, dataset: "Samples", training: Training) -> Iterator[ConfigProblem]:
    """Yield a problem if the dataset lacks columns that the training method needs (see `_COLUMNS`)."""
    columns = _read_columns(dataset)
    text = training.options.get("dataset_text_field")
    sets = ((text,),) if text else _COLUMNS[method]
    if columns is not None and not any(columns.issuperset(each) for each in sets):
        required = ", or ".join(" and ".join(map(repr, each)) for each in sets)
        yield ConfigProblem("columns", sorted(columns), f"{method} needs {required}")


def _read_columns(dataset: "Samples") -> set[str] | None:
    """Return the names of the columns of the dataset; None if they are unknown until the data is read."""
    if isinstance(dataset, Sequence):
        return set(dataset[0]) if dataset else set()
    names: Iterable[str] | None = dataset.column_names
    return None if names is None else set(names)


def _check_four_bits(model: "Model", *, has_gpu: bool) -> Iterator[ConfigProblem]:
    if not has_gpu:
        remedy = "QLoRA needs a GPU; leave it out to train adapters of the unquantized model"
        yield ConfigProblem("four_bits", value=True, remedy=remedy)
    if not isinstance(model, str):
        remedy = "needs the path or the Hub id of the model, which it loads itself"
        yield ConfigProblem("four_bits", value=True, remedy=remedy)


def _build_adapter(lora: Lora | None, model: "Model", *, has_gpu: bool) -> dict[str, Any]:
    """Return the keyword arguments of TRL's trainer that add adapters to the model; ``{}`` without `lora`.

    Raises:
        ConfigError: If the model cannot be loaded with four bits.
    """
    if lora is None:
        return {}
    if lora.four_bits:
        require_valid("Lora", _check_four_bits(model, has_gpu=has_gpu))
    from peft import LoraConfig

    adapter = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )
    if not lora.four_bits:
        return {"peft_config": adapter}
    import torch
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
    return {"peft_config": adapter, "quantization_config": quantization}
