"""Tables of docs/reference/task-config.md, from the docstrings of the config classes."""

import dataclasses
import inspect
import re

from generated import code, table

import flytekitplugins.kfpytorch

ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)


def build_class_table(name: str) -> str:
    """Return the summary of the class docstring, and a table of its fields with defaults and descriptions."""
    kind = getattr(flytekitplugins.kfpytorch, name)
    summary, _, rest = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    descriptions = arguments(inspect.cleandoc(rest.partition("\nRaises:\n")[0]))
    fields = dataclasses.fields(kind)
    assert [*descriptions] == [field.name for field in fields], (
        f"{name}: fields and their descriptions differ"
    )
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
