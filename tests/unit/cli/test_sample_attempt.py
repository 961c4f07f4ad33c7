"""Tests of the example attempt and of the placeholders that FlytePropeller fills in."""

import re

import pytest
from builders import a_template

from backend_plugin.cli import sample_attempt
from backend_plugin.cli.command_errors import UnusableInput

INTERFACE = {"inputs": {"variables": {"epochs": {"type": {"simple": "INTEGER"}}}}}


def filled(*args: str, **inputs: str) -> list[str]:
    template = a_template({}, interface=INTERFACE, container={"image": "i", "args": args})
    return list(sample_attempt.build_attempt(template, inputs)[0].container.args)


def test_placeholders_are_replaced_in_each_spelling() -> None:
    keys = ("{{.perRetryUniqueKey}}", "{{ $PerRetryUniqueKey }}-{{.namespace}}", "{{.other}}")
    assert filled(*keys) == ["example-n0-0", "example-n0-0-project-development", "{{.other}}"]
    assert filled("--epochs={{.Inputs.epochs}}", epochs="3") == ["--epochs=3"]
    with pytest.raises(UnusableInput, match=r"contain \{\{\.inputs\.epochs\}\}; add --input epochs=VALUE"):
        filled("{{.inputs.epochs}}")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("epochs", "--input epochs: has no value; write --input epochs=VALUE"),
        ("epoch=3", "--input epoch: module.train has no such input; it has epochs"),
        ("x=3", "--input x: module.train has no such input; it has epochs"),
    ],
)
def test_invalid_input_option_is_explained(pair: str, message: str) -> None:
    with pytest.raises(UnusableInput) as refused:
        sample_attempt.parse_inputs([pair], a_template({}, id={"name": "module.train"}, interface=INTERFACE))
    assert str(refused.value) == message


def test_interruptible_task_has_an_interruptible_attempt() -> None:
    template = a_template({}, metadata={"interruptible": True})
    assert sample_attempt.build_attempt(template, {})[1].is_interruptible
    assert not sample_attempt.build_attempt(a_template({}), {})[1].is_interruptible


@pytest.mark.parametrize(
    "name",
    ["input", "inputPrefix", "outputPrefix", "rawOutputDataPrefix", "checkpointOutputPrefix",
     "prevCheckpointPrefix", "perRetryUniqueKey", "taskTemplatePath", "namespace"],
)  # fmt: skip
def test_each_placeholder_of_propeller_is_replaced(name: str) -> None:
    (text,) = filled(f"<{{{{.{name}}}}}>")
    assert re.fullmatch(r"<[^{}<>]+>", text)
