# ruff: noqa: E501 - a row a case
"""Tests of Python files as the source of a task: valid files, and errors for invalid ones."""

import sys
from pathlib import Path

import pytest
from flyteidl.core.literals_pb2 import LiteralMap
from google.protobuf.json_format import ParseDict

from backend_plugin.cli import python_file
from backend_plugin.cli.command_errors import UnusableInput

TASKS = """
import os
from flytekit import map_task, task, workflow
from flytekitplugins.kfpytorch import PyTorch, Worker

print("said by the file")
os.system("echo said by its child")

@task(task_config=PyTorch(worker=Worker(replicas=1)))
def train(epochs: int) -> int:
    return epochs

each = map_task(train)

@workflow
def training() -> int:
    return train(epochs=1)
"""
NO_IMAGE = TASKS.replace("task(task", "task(container_image='{{.image.none.fqn}}', task")
TYPED = """
from flytekit import task

@task
def train(count: int, rates: list[float] = [0.5], name: str = "a") -> None: ...
"""


@pytest.fixture(autouse=True)
def forgotten(tmp_path, monkeypatch):
    """Remove the modules that a test imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def file(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load(path, task="train"):
    return python_file.load_task(path, task, image="i:1").template


def test_output_of_a_task_file_is_redirected_to_stderr(capfd):
    load(file("printing.py", TASKS), "printing.train")
    out, err = capfd.readouterr()
    assert (out, sorted(err.split("\n"))) == ("", ["", "said by its child", "said by the file"])


def test_task_is_found_by_its_variable_name():
    template = load(file("mapped.py", TASKS), "each")
    assert (template.type, "pyflyte-map-execute" in str(template)) == ("pytorch", True)


def test_image_spec_is_replaced_and_not_built():
    spec = "from flytekit import ImageSpec\nSPEC = ImageSpec('built', packages=['nothing'])\n"
    tasks = TASKS.replace("task(task", "task(container_image=SPEC, task")
    (container,) = load(file("specified.py", spec + tasks)).k8s_pod.pod_spec["containers"]
    assert container["image"].rpartition("/")[2].startswith("built:")


def test_module_of_a_package_is_imported_with_its_package():
    file("package/__init__.py", "")
    file("package/sizes.py", "WORKERS = 3")
    text = "from .sizes import WORKERS\n" + TASKS.replace("replicas=1", "replicas=WORKERS")
    template = load(file("package/tasks.py", text))
    assert template.id.name == "package.tasks.train"
    assert template.custom["workerReplicas"]["replicas"] == 3


def test_modules_in_the_working_directory_can_be_imported():
    file("at_the_top.py", "")
    assert load(file("scripts/below.py", "import at_the_top\n" + TASKS)).id.name == "below.train"


@pytest.mark.parametrize(
    ("name", "text", "task", "message"),
    [
        ("mistyped.py", "def train(:", None, "mistyped.py cannot be imported: SyntaxError: invalid syntax"),
        ("missing.py", "\nimport no_such_module", None, "install it here, or import it inside the task\n  at"),
        ("raising.py", "def fails():\n    1 / 0\nfails()", None, "division by zero\n  at raising.py:2"),
        ("leaving.py", "raise SystemExit(3)", None, "leaving.py cannot be imported: SystemExit: 3"),
        ("json.py", "", None, "json.py: Python imports another module with the name json; rename the file"),
        ("none.py", "x = 1", None, "none.py: contains no task"),
        ("named.py", TASKS, "training", "named.py: training is a workflow; name one of its tasks"),
        ("named.py", TASKS, "trian", "named.py: has no task trian; did you mean train?"),
        ("named.py", TASKS, "different", "named.py: has no task different; it has named.map_train_"),
        ("named.py", TASKS, None, "named.py: no task is given. Name one of: named.map_train_"),
        ("unwritable.py", NO_IMAGE, "train", "unwritable.train cannot be serialized: AssertionError: "),
    ],
)  # fmt: skip
def test_unusable_file_or_task_is_explained(name: str, text: str, task: str | None, message: str) -> None:
    with pytest.raises(UnusableInput) as refused:
        python_file.load_task(file(name, text), task, image="i:1")
    assert message in str(refused.value)


def test_image_without_a_tag_is_explained():
    with pytest.raises(UnusableInput, match="--image i: is not the name of an image; write its name and tag"):
        python_file.load_task(file("untagged.py", TASKS), "train", image="i")


def test_inputs_are_encoded_by_their_types():
    loaded = python_file.load_task(file("typed_inputs.py", TYPED), None, image="i:1")
    written = loaded.encode_inputs({"count": "2", "name": "3"})
    rates = written.literals["rates"].collection.literals
    assert written.literals["count"].scalar.primitive.integer == 2
    assert written.literals["name"].scalar.primitive.string_value == "3"
    assert [each.scalar.primitive.float_value for each in rates] == [0.5]


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5", "type int but got '1.5' of type float"), ("zz", "of type int")]
)
def test_input_of_another_type_is_reported_with_its_text_and_the_type(text: str, expected: str) -> None:
    loaded = python_file.load_task(file("typed_wrong.py", TYPED), None, image="i:1")
    with pytest.raises(UnusableInput) as refused:
        loaded.encode_inputs({"count": text})
    assert str(refused.value).startswith(f"--input count={text}: ")
    assert str(refused.value).endswith(expected)


def test_all_invalid_inputs_are_reported_together():
    source = TYPED.replace('name: str = "a"', "*, name: str")
    loaded = python_file.load_task(file("typed_missing.py", source), None, image="i:1")
    with pytest.raises(UnusableInput) as refused:
        loaded.encode_inputs({"count": "zz"})
    assert str(refused.value).splitlines() == [
        "--input count=zz: is not JSON; write a value of type int",
        "  input name has no value; write --input name=VALUE",
    ]


def test_optional_input_needs_no_value():
    source = "from flytekit import task\n@task\ndef train(seed: int | None = None) -> None: ...\n"
    loaded = python_file.load_task(file("typed_optional.py", source), None, image="i:1")
    assert loaded.encode_inputs({}).literals["seed"].scalar.union.value.scalar.HasField("none_type")


def test_outputs_are_read_without_loading_their_files():
    uri = "file:///store/raw/out.txt"
    file = {"scalar": {"blob": {"uri": uri, "metadata": {"type": {}}}}}
    numbers = {"collection": {"literals": [{"scalar": {"primitive": {"integer": "3"}}}]}}
    written = ParseDict({"literals": {"o0": file, "o1": numbers}}, LiteralMap())
    assert python_file.read_outputs(written) == {"o0": uri, "o1": [3]}
