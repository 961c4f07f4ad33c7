"""Errors in the fields of an object, in the form in which the API server reports them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.values import JsonValue

_UNSUPPORTED: Final = "Unsupported value"
_REQUIRED: Final = "Required value"
_FORBIDDEN: Final = "Forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """An error in one field of a Kubernetes object."""

    field: str
    kind: str
    """The kind of the error, such as ``Invalid value``."""
    value: JsonValue = None
    """The value of the field; None if the field is absent, or the value does not matter."""
    detail: str = ""

    @property
    def message(self) -> str:
        """The text of the error without the path of the field."""
        value = "" if self.value is None else _format_value(self.value)
        return ": ".join(filter(None, (self.kind, value, self.detail)))

    @property
    def is_certain(self) -> bool:
        """True if API servers of all releases reject the field.

        A newer API server may accept values, fields and sources of variables that `pod_rules` rejects.
        """
        is_source_missing = self.kind == _REQUIRED and self.detail != ""
        return self.kind not in (_UNSUPPORTED, _FORBIDDEN) and not is_source_missing

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def build_required_error(field: str, detail: str = "") -> FieldError:
    """Return the error for a missing or empty field."""
    return FieldError(field=field, kind=_REQUIRED, detail=detail)


def build_invalid_error(field: str, value: JsonValue, detail: str) -> FieldError:
    """Return the error for a value that violates a rule."""
    return FieldError(field=field, kind="Invalid value", value=value, detail=detail)


def build_forbidden_error(field: str, detail: str) -> FieldError:
    """Return the error for a field or value that is not allowed."""
    return FieldError(field=field, kind=_FORBIDDEN, detail=detail)


def build_duplicate_error(field: str, value: JsonValue) -> FieldError:
    """Return the error for a duplicate key."""
    return FieldError(field=field, kind="Duplicate value", value=value)


def check_choice(field: str, value: str, supported: Sequence[str]) -> Iterator[FieldError]:
    """Yield the error for a value that is not one of `supported`."""
    if value not in supported:
        listed = ", ".join(map(_format_value, supported))
        yield FieldError(field=field, kind=_UNSUPPORTED, value=value, detail=f"supported values: {listed}")


def check_name(field: str, value: str, rule: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield the errors for a name that breaks a rule of `name_rules`; an empty name counts as absent."""
    for detail in rule(value) if value else ():
        yield build_invalid_error(field, value, detail)


def check_required_name(
    field: str, value: str, rule: Callable[[str], list[str]], taken: set[str]
) -> Iterator[FieldError]:
    """Yield the errors for a missing, invalid or repeated name, and add it to the earlier names `taken`."""
    if not value:
        yield build_required_error(field)
    yield from check_name(field, value, rule)
    if value in taken:
        yield build_duplicate_error(field, value)
    taken.add(value)


def _format_value(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
