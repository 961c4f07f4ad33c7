"""How an API server says no.

Lives here: its codes, reasons and the shape of its sentences. Does not: what is refused.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.errors import Refused
from backend_plugin.core.values import JsonValue

_MORE: Final = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)
WEBHOOK: Final = "validator.pytorchjob.training-operator.kubeflow.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What is wrong with one field."""

    field: str
    said: str
    """Everything behind the field's name."""
    is_blocking: bool = False
    """Whether rules in CEL are left out because of it."""

    def __str__(self) -> str:
        return f"{self.field}: {self.said}"


def required(field: str, detail: str = "") -> Cause:
    """A field that is missing, or empty."""
    return Cause(field=field, said=f"Required value{_behind(detail)}", is_blocking=True)


def invalid(field: str, value: JsonValue, detail: str) -> Cause:
    """A value that breaks a rule."""
    return Cause(field=field, said=f"Invalid value: {_shown(value)}{_behind(detail)}")


def wrong_type(field: str, wanted: str, found: str) -> Cause:
    """A value of another type."""
    detail = f'{field} in body must be of type {wanted}: "{found}"'
    return Cause(field=field, said=f'Invalid value: "{found}": {detail}', is_blocking=True)


def unsupported(field: str, value: JsonValue, supported: Sequence[str]) -> Cause:
    """A word that is none of the few."""
    listed = ", ".join(_shown(each) for each in supported)
    said = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return Cause(field=field, said=said, is_blocking=True)


def forbidden(field: str, detail: str) -> Cause:
    """A value that may not be there, or not so."""
    return Cause(field=field, said=f"Forbidden{_behind(detail)}")


def duplicate(field: str, value: JsonValue) -> Cause:
    """A key that is there twice."""
    return Cause(field=field, said=f"Duplicate value: {_shown(value)}")


def not_found(field: str, value: JsonValue) -> Cause:
    """A name of something that is not there."""
    return Cause(field=field, said=f"Not found: {_shown(value)}")


def too_long(field: str, most: int) -> Cause:
    """More bytes than fit."""
    return Cause(field=field, said=f"Too long: may not be more than {most} bytes", is_blocking=True)


def unprocessable(kind: str, name: str, causes: Sequence[Cause]) -> Refused:
    """The API server's own refusal; `kind` is its name, with its group if it has one."""
    return Refused(422, "Invalid", f'{kind} "{name}" is invalid: {_joined(map(str, causes))}')


def unprocessable_resource(kind: str, name: str, causes: Sequence[Cause]) -> Refused:
    """The same of a custom resource, where whoever is refused hears that more may be wrong."""
    said = [str(cause) for cause in causes]
    if any(cause.is_blocking for cause in causes):
        said.append(_MORE)
    return Refused(422, "Invalid", f'{kind} "{name}" is invalid: {_joined(said)}')


def denied(causes: Sequence[Cause]) -> Refused:
    """That of the operator's webhook."""
    said = _joined(map(str, causes))
    return Refused(403, "Forbidden", f'admission webhook "{WEBHOOK}" denied the request: {said}')


def not_understood(detail: str) -> Refused:
    """What the API server cannot read."""
    return Refused(400, "BadRequest", detail)


def _joined(causes: Iterable[str]) -> str:
    said = list(dict.fromkeys(causes))
    return said[0] if len(said) == 1 else f"[{', '.join(said)}]"


def _shown(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _behind(detail: str) -> str:
    return f": {detail}" if detail else ""
