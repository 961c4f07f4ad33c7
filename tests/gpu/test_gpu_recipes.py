"""The recipes train on a GPU. `make gpu` needs the packages of the recipes for this file."""

import math

import pytest


@pytest.mark.timeout(600)
def test_recipes_train_on_a_gpu(tmp_path):
    from recipes.tiny_model import SAMPLES, train_all

    results = train_all(tmp_path)
    assert set(results) == {f"{name}-{kind}" for name in SAMPLES for kind in ("lora", "full")}
    for result in results.values():
        assert len(result["losses"]) == 5
        assert all(map(math.isfinite, result["losses"]))
