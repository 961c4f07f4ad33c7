"""The generated parts of pages, between ``<!-- generated: NAME -->`` and ``<!-- end -->``, match the code.

``UPDATE=1 pytest tests/test_generated_pages.py`` rewrites them.
"""

import ast
import dataclasses
import inspect
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from flyteidl.plugins.kubeflow import pytorch_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

import flytekitplugins.kfpytorch
from backend_plugin.core.judging import messages, verdict_rules
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.settings import judging, loader
from backend_plugin.doctor.run_checks import CHECKS
from backend_plugin.kube import api_client, connection, list_watch
from backend_plugin.kube.api_errors import TABLE
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell import (
    background_operations,
    connector_service,
    job_deleter,
    orphan_finder,
    output_collector,
    reconciler,
)
from kfpytorch_idl.v1 import job_ref_pb2, task_pb2

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PART = re.compile(r"<!-- generated: (?P<name>\S+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)
TABLES = ("before", "running", "given-up", "ends", "train-jobs")
STATE = re.compile(r"^\| (<!-- (\S+) --> .*?) \| `", re.MULTILINE)
ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"((?:^ +//.*\n)*)^ +(?:optional |repeated )?[\w.<>, ]+? (\w+) = \d+;", re.MULTILINE)
KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_INT32: "int32",
    FieldDescriptor.CPPTYPE_INT64: "int64",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
}


def parts(page: Path) -> list[str]:
    return [found["name"] for found in PART.finditer(page.read_text())]


def read_part(page: Path, name: str) -> re.Match[str]:
    return next(found for found in PART.finditer(page.read_text()) if found["name"] == name)


def agree(page: Path, name: str, expected: str) -> None:
    """Fail if the part differs from the expected text. With UPDATE set, write the part instead."""
    found = read_part(page, name)
    text = found.string
    if os.environ.get("UPDATE"):
        page.write_text(text[: found.start("text")] + expected + text[found.end("text") :])
    else:
        assert found["text"] == expected


def table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table, with an empty line before and after it."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join(["", lines[0], "|---" * len(head) + "|", *lines[1:], "", ""])


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# ---- docs/reference/phases.md: states, after a comment with the name of their case in tests/golden/verdicts


def read_verdict(case: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((ROOT / f"tests/golden/verdicts/{case}.yaml").read_text())
    return found["verdict"]


def read_states(name: str) -> list[tuple[str, str]]:
    return STATE.findall(read_part(DOCS / "reference/phases.md", name)["text"])


def build_phase_table(name: str) -> str:
    """Return a table with one row per state of the page, with the first line of each message."""
    rows = [build_row(state, read_verdict(case)) for state, case in read_states(name)]
    return table(["state", "phase", "reason", "cause", "message begins"], rows)


def build_row(state: str, verdict: Mapping[str, Any]) -> list[str]:
    first = verdict["message"].splitlines()[0].replace("|", r"\|").replace("<", "&lt;")
    cells = [code(verdict[name] or "") for name in ("phase", "reason", "cause")]
    return [state, *cells, first]


# ---- reference pages: docstrings of config classes, messages, and the table of API errors


def build_error_table() -> str:
    rows = (
        [row.answer, "yes" if row.repeated else "", row.create.value, row.get.value, row.delete.value]
        for row in TABLE
    )
    return table(["response", "sent again", "create", "get", "delete"], rows)


def build_doctor_table() -> str:
    rows = ([code(check.id), check.level.value, check.condition] for check in CHECKS)
    return table(["check", "level", "the check passes if"], rows)


def build_class_table(name: str) -> str:
    """Return the summary of the class docstring, and a table of its fields with defaults and descriptions."""
    kind = getattr(flytekitplugins.kfpytorch, name)
    summary, _, rest = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    descriptions = arguments(inspect.cleandoc(rest.partition("\nRaises:\n")[0]))
    fields = sorted(dataclasses.fields(kind), key=lambda field: field.kw_only)
    assert [*descriptions] == [field.name for field in fields], f"{name}: descriptions differ from the fields"
    rows = [
        [f"`{field.name}`" + r"\*" * field.kw_only, code(default_of(field)), descriptions[field.name]]
        for field in fields
    ]
    return f"{markdown(summary)}\n" + table(["field", "default", ""], rows)


def arguments(text: str) -> dict[str, str]:
    _, *parts = ARGUMENT.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: " ".join(markdown(description).split()).replace("|", r"\|") for name, description in pairs}


def markdown(text: str) -> str:
    return text.replace("``", "`").strip()


def default_of(field: "dataclasses.Field[object]") -> str:
    if field.default is field.default_factory is dataclasses.MISSING:
        return ""
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if dataclasses.is_dataclass(value):
        assert value == type(value)()
        return f"{type(value).__name__}()"
    return repr(value).replace("'", '"')


def build_flyteidl_table() -> str:
    """Return a table of the PyTorch task message and its nested messages, with one row per field."""
    rows = [
        [code(message.name), code(field.json_name), type_of(field)]
        for message in reached(pytorch_pb2.DistributedPyTorchTrainingTask.DESCRIPTOR)
        for field in message.fields
    ]
    return table(["message", "key", "type"], rows)


def reached(message: Descriptor) -> Iterator[Descriptor]:
    """Yield a message, then each nested message of flyteidl's plugins once."""
    found = [message]
    for each in found:
        yield each
        for field in each.fields:
            inner = field.message_type
            if inner is not None and inner not in found and "plugins" in inner.full_name:
                found.append(inner)


def type_of(field: FieldDescriptor) -> str:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return "texts by name"
    if kind is not None:
        name = code(kind.name)
    elif field.enum_type is not None:
        name = " or ".join(code(value.name) for value in field.enum_type.values)
    else:
        name = KINDS[field.cpp_type]
    return f"list of {name}" if field.is_repeated else name


def build_message_table(name: str) -> str:
    """Return a table of the fields of one of our messages, with the comments of the proto file."""
    module = job_ref_pb2 if name == "JobRef" else task_pb2
    source = "".join(path.read_text() for path in sorted((ROOT / "protos/kfpytorch_idl/v1").glob("*.proto")))
    comments = {
        field: words(comment) for comment, field in FIELD.findall(dict(MESSAGE.findall(source))[name])
    }
    fields = getattr(module, name).DESCRIPTOR.fields
    rows = [[code(field.json_name), type_of(field), comments[field.name]] for field in fields]
    return table(["key", "type", ""], rows)


def words(comment: str) -> str:
    return " ".join(re.sub(r"^ +// ?", " ", comment, flags=re.MULTILINE).split())


# ---- docs/explanation/timeouts.md: configurable timeouts, and fixed timeouts of the server

KEYS = {field: key for key, field in loader._GRACES.items()}
KUBERNETES = KubernetesOptions()

# Timeouts that no setting changes, by their ids on the page, which describes them.
FIXED = {
    "create-task": connector_service._CREATE_SECONDS,
    "pod-group": reconciler.ACCOMPANY_CALL,
    "delete-task": job_deleter.DELETE_CALL,
    "request": KUBERNETES.request_timeout,
    "denied": api_client._DENIED,
    "attempt": api_client._ATTEMPT,
    "silence": KUBERNETES.silence,
    "list-pause": list_watch._LONGEST_PAUSE,
    "credentials": connection._RELOAD,
    "resync": reconciler.RESYNC_SECONDS,
    "explanation": verdict_rules._LONGEST_POD_DELAY,
    "outputs": sum(output_collector.READ_PAUSES),
    "store": output_collector.PATIENCE,
    "background": background_operations.LONGEST_PAUSE,
    "remembered": reconciler.REMEMBERED,
    "orphan": orphan_finder.LEAST_AGE,
}
TIMEOUT = re.compile(r"^\| .*? \| (<!-- (\S+) --> .*?) \| (.*?) \|$", re.MULTILINE)


def build_settings_table() -> str:
    """Return a table of the timeouts that a platform may set, with default and docstring."""
    defaults, descriptions = judging.JudgingSettings(), docstrings(judging.JudgingSettings)
    values = {field.name: getattr(defaults, field.name) for field in dataclasses.fields(defaults)}
    rows = [
        [code(KEYS.get(name, name.replace("_", "-"))), default(value), descriptions[name]]
        for name, value in values.items()
        if isinstance(value, timedelta)
    ]
    return table(["setting", "default", ""], rows)


def default(value: timedelta) -> str:
    return messages.format_duration(value) if value else "0"


def docstrings(kind: type) -> dict[str, str]:
    return {
        field.target.id: " ".join(text.value.value.replace("``", "`").split())
        for field, text in pairwise(ast.parse(inspect.getsource(kind)).body[0].body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def build_server_table() -> str:
    """Return a table of the fixed timeouts, with the descriptions of the page."""
    found = TIMEOUT.findall(read_part(DOCS / "explanation/timeouts.md", "server")["text"])
    assert [name for _, name, _ in found] == [*FIXED]
    rows = [[lasting(FIXED[name]), what, then] for what, name, then in found]
    return table(["time", "of what", "then"], rows)


def lasting(value: float | timedelta) -> str:
    if isinstance(value, float) and value % 1:
        return f"{value:g} s"
    return messages.format_duration(value if isinstance(value, timedelta) else timedelta(seconds=value))


# ---- the tests

CLASSES = (
    *("RunPolicy", "Master", "Worker", "PyTorch", "Elastic", "Gang", "TrainJob", "SuccessPolicy"),
    *("PodFailurePolicyRule", "Dataset", "Model", "Storage", "Topology"),
)
MESSAGES = (
    *("TaskExtension", "Role", "Toleration", "Gang", "TrainJob", "SuccessPolicy", "PodFailurePolicyRule"),
    *("DataSource", "Storage", "Topology", "JobRef"),
)

PARTS = {
    "reference/task-config.md": {name: partial(build_class_table, name) for name in CLASSES},
    "reference/phases.md": {name: partial(build_phase_table, name) for name in TABLES},
    "reference/wire-format.md": {
        "flyteidl": build_flyteidl_table,
        **{name: partial(build_message_table, name) for name in MESSAGES},
    },
    "reference/doctor.md": {"checks": build_doctor_table},
    "explanation/kubernetes-api-use.md": {"answers": build_error_table},
    "explanation/timeouts.md": {"settings": build_settings_table, "server": build_server_table},
}


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page, parts in PARTS.items() for name in parts], ids=str
)
def test_generated_part_of_a_page_matches_the_code(page, name):
    agree(DOCS / page, name, PARTS[page][name]())


def test_generated_parts_match_the_list_of_parts():
    marked = {str(page.relative_to(DOCS)): parts(page) for page in DOCS.rglob("*.md")}
    assert {page: parts for page, parts in marked.items() if parts} == {
        page: [*parts] for page, parts in PARTS.items()
    }


def test_each_phase_is_documented():
    cases = [case for name in TABLES for _, case in read_states(name)]
    phases = {read_verdict(case)["phase"] for case in cases}
    assert phases == {phase.value for phase in Phase} - {"UNDEFINED"}
    page = (DOCS / "reference/phases.md").read_text()
    assert [f"| `{phase}` |" in page for phase in sorted(phases)] == [True] * len(phases)
