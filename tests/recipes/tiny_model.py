"""A model with 30,000 parameters, a tokenizer for single characters, samples, and a run of all recipes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHARACTERS = "abcdefghijklmnopqrstuvwxyz "
WORDS = ("red", "green", "blue", "black", "white", "brown", "pink", "grey")
QUESTIONS = [f"say {word} " for word in WORDS] * 2
ANSWERS = [*WORDS] * 2
SAMPLES = {
    "sft": [{"prompt": ask, "completion": answer} for ask, answer in zip(QUESTIONS, ANSWERS, strict=True)],
    "dpo": [
        {"prompt": ask, "chosen": answer, "rejected": answer[::-1]}
        for ask, answer in zip(QUESTIONS, ANSWERS, strict=True)
    ],
    "kto": [
        {"prompt": ask, "completion": answer[:: 1 if is_good else -1], "label": is_good}
        for ask, answer in zip(QUESTIONS, ANSWERS, strict=True)
        for is_good in (True, False)
    ],
    "grpo": [{"prompt": ask} for ask in QUESTIONS],
    "distill": [{"prompt": ask} for ask in QUESTIONS],
}


def save_model(folder, *, seed):
    """Save a model with random weights and its tokenizer, and return the path."""
    special = ["<pad>", "<eos>"]
    vocabulary = {text: number for number, text in enumerate([*special, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>").save_pretrained(
        folder
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def train_all(folder, **env):
    """Run all recipes with models in a folder, without downloads, and return their results."""
    student, teacher = save_model(folder / "student", seed=1), save_model(folder / "teacher", seed=2)
    models = ["--student", student, "--teacher", teacher, "--folder", folder]
    tasks = Path(__file__).with_name("training.py")
    done = subprocess.run(
        [Path(sys.executable).with_name("pyflyte"), "run", tasks, "train_all", *models],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(tasks.parents[1]), **env},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
