"""Tests of the example attempt and of the placeholders that FlytePropeller fills in."""

import re

import pytest
from builders import a_template

from backend_plugin.cli import sample_attempt

INTERFACE = {"inputs": {"variables": {"epochs": {"type": {"simple": "INTEGER"}}}}}


def filled(*args: str, **inputs: str) -> list[str]:
    template = a_template({}, interface=INTERFACE, container={"image": "i", "args": args})
    return list(sample_attempt.build_attempt(template, inputs)[0].container.args)


def test_placeholders_are_replaced_in_each_spelling() -> None:
    keys = ("{{.perRetryUniqueKey}}", "{{ $PerRetryUniqueKey }}-{{.namespace}}", "{{.other}}")
    assert filled(*keys) == ["example-n0-0", "example-n0-0-project-development", "{{.other}}"]
    assert filled("--epochs={{.Inputs.epochs}}", epochs="3") == ["--epochs=3"]


@pytest.mark.parametrize("interruptible", [False, True])
def test_interruptible_task_has_an_interruptible_attempt(interruptible: bool) -> None:
    template = a_template({}, metadata={"interruptible": interruptible})
    assert sample_attempt.build_attempt(template, {})[1].is_interruptible is interruptible


@pytest.mark.parametrize(
    "name",
    ["input", "inputPrefix", "outputPrefix", "rawOutputDataPrefix", "checkpointOutputPrefix",
     "prevCheckpointPrefix", "perRetryUniqueKey", "taskTemplatePath", "namespace"],
)  # fmt: skip
def test_each_placeholder_of_propeller_is_replaced(name: str) -> None:
    (text,) = filled(f"<{{{{.{name}}}}}>")
    assert re.fullmatch(r"<[^{}<>]+>", text)
