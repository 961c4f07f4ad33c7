"""Reads the settings of the platform and of a server, and collects all problems in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, TypeAlias, get_args

from backend_plugin.core.errors import Problem

Parser: TypeAlias = Callable[[Any], Any]
Parsers: TypeAlias = "Mapping[str, Parser | Parsers | NamedSections]"
"""A parser for each key, or the parsers of a nested section."""

# The length limit of a value in a message, which only has to identify it.
_LONGEST_SHOWN: Final = 80


class InvalidSettingValue(ValueError):
    """An invalid value: the message and the remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class NamedSections:
    """The parsers of a setting that has one section for each name an admin chooses, such as a project."""

    parsers: Parsers


@dataclass(slots=True)
class SettingsReader:
    """A reader of sections, with the problems that it has found and the raw values by full name."""

    empty: tuple[Any, ...] = (None,)
    """The values that leave a key unset."""
    problems: list[Problem] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def read_section(self, section: Any, parsers: Parsers, path: str = "") -> dict[str, Any]:
        """Return the parsed values of a section by key; add a problem for each invalid value or key."""
        if not isinstance(section, Mapping):
            self.add_problem(path.rstrip("."), section, "is not a section", "write keys with values")
            return {}
        values: dict[str, Any] = {}
        for key, value in section.items():
            name, parser = f"{path}{key}", parsers.get(key)
            if parser is None:
                self.add_problem(name, value, "is not a setting", suggest_name(str(key), parsers))
            elif value in self.empty:
                continue
            elif isinstance(parser, NamedSections):
                values[key] = self._read_named_sections(value, parser.parsers, name)
            elif isinstance(parser, Mapping):
                values[key] = self.read_section(value, parser, f"{name}.")
            else:
                self.read_value(values, key, name, value, parser)
        return values

    def _read_named_sections(self, section: Any, parsers: Parsers, name: str) -> dict[str, Any]:
        sections = dict.fromkeys(section, parsers) if isinstance(section, Mapping) else {}
        # `read_section` skips a section without values, but its name must be kept.
        return {**{each: {} for each in sections}, **self.read_section(section, sections, f"{name}.")}

    def read_value(self, values: dict[str, Any], key: str, name: str, value: Any, parser: Parser) -> None:
        """Parse the value of the setting `name` into `values[key]`; add a problem if it is invalid."""
        self.raw[name] = value
        try:
            values[key] = parser(value)
        except InvalidSettingValue as wrong:
            self.add_problem(name, value, wrong.message, wrong.remedy)

    def add_problem(self, name: str, value: Any, message: str, remedy: str) -> None:
        """Add a problem, with the value shortened."""
        shortened = repr(value)[:_LONGEST_SHOWN]
        self.problems.append(Problem(field=name, value=shortened, message=message, remedy=remedy))


def suggest_name(name: str, known: Mapping[str, Any]) -> str:
    """Return the remedy for an unknown name: to use the most similar known name, or to remove it."""
    nearest = get_close_matches(name, list(known), n=1)
    return f"did you mean {nearest[0]}?" if nearest else "remove it"


def convert_to_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by field name, which has ``_`` for each ``-`` and ``.`` of the key."""
    return {key.replace("-", "_").replace(".", "_"): value for key, value in values.items()}


def derive_parsers(
    record: Any, by_type: Mapping[Any, Parser], by_field: "Parsers | None" = None
) -> dict[str, "Parser | Parsers | NamedSections"]:
    """Return the parsers for the fields of the dataclass `record` by settings key.

    The key is the field's name with ``-`` for ``_``. The type of the field selects its parser in `by_type`; a
    field of another type is left out. The parsers in `by_field`, by settings key, take precedence.
    """
    chosen = dict(by_field or {})
    for each in fields(record):
        kind = get_args(each.type)[0] if isinstance(each.type, UnionType) else each.type
        if kind in by_type:
            chosen.setdefault(each.name.replace("_", "-"), by_type[kind])
    return chosen
