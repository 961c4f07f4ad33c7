"""Tables of reference pages, from the docstrings of config classes, messages, and the table of API errors."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from flyteidl.plugins.kubeflow import pytorch_pb2
from generated import code, table
from google.protobuf.descriptor import Descriptor, FieldDescriptor

import flytekitplugins.kfpytorch
from backend_plugin.doctor.registry import CHECKS
from backend_plugin.kube.api_errors import TABLE
from kfpytorch_idl.v1 import job_ref_pb2, task_pb2

ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)
PROTOS = Path(__file__).parent.parent / "protos/kfpytorch_idl/v1"
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"((?:^ +//.*\n)*)^ +(?:optional |repeated )?[\w.<>, ]+? (\w+) = \d+;", re.MULTILINE)


def build_error_table() -> str:
    rows = (
        [row.answer, "yes" if row.repeated else "", row.create.value, row.get.value, row.delete.value]
        for row in TABLE
    )
    return table(["response", "sent again", "create", "get", "delete"], rows)


def build_doctor_table() -> str:
    rows = ([code(check.id), check.level.value, check.proves] for check in CHECKS)
    return table(["check", "level", "the check passes if"], rows)


def build_class_table(name: str) -> str:
    """Return the summary of the class docstring, and a table of its fields with defaults and descriptions."""
    kind = getattr(flytekitplugins.kfpytorch, name)
    summary, _, rest = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    descriptions = arguments(inspect.cleandoc(rest.partition("\nRaises:\n")[0]))
    fields = sorted(dataclasses.fields(kind), key=lambda field: field.kw_only)
    assert [*descriptions] == [field.name for field in fields], f"{name}: descriptions differ from the fields"
    rows = [
        [f"`{field.name}`" + r"\*" * field.kw_only, code(default(field)), descriptions[field.name]]
        for field in fields
    ]
    return f"{markdown(summary)}\n" + table(["field", "default", ""], rows)


def arguments(text: str) -> dict[str, str]:
    """Return the description of each argument, as one line."""
    _, *parts = ARGUMENT.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: " ".join(markdown(description).split()).replace("|", r"\|") for name, description in pairs}


def markdown(text: str) -> str:
    return text.replace("``", "`").strip()


def default(field: "dataclasses.Field[object]") -> str:
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


KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_INT32: "int32",
    FieldDescriptor.CPPTYPE_INT64: "int64",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
}


def build_message_table(name: str) -> str:
    """Return a table of the fields of one of our messages, with the comments of the proto file."""
    module = job_ref_pb2 if name == "JobRef" else task_pb2
    source = "".join(path.read_text() for path in sorted(PROTOS.glob("*.proto")))
    comments = {
        field: words(comment) for comment, field in FIELD.findall(dict(MESSAGE.findall(source))[name])
    }
    fields = getattr(module, name).DESCRIPTOR.fields
    rows = [[code(field.json_name), type_of(field), comments[field.name]] for field in fields]
    return table(["key", "type", ""], rows)


def words(comment: str) -> str:
    return " ".join(re.sub(r"^ +// ?", " ", comment, flags=re.MULTILINE).split())
