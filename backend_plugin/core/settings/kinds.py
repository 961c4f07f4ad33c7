"""The kinds of values that settings have: a reader for each, which takes what YAML gives or refuses it.

Lives here: one value. Which setting has which kind is in `reading`.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from backend_plugin.core.quantity import NotAQuantity, Quantity, parse
from backend_plugin.core.values import Manifest

Read: TypeAlias = Callable[[Any], Any]


class Wrong(ValueError):
    """A value that cannot be meant: what is wrong, and what would be right."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class _Toleration(msgspec.Struct, forbid_unknown_fields=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    tolerationSeconds: int | None = None  # noqa: N815  (Kubernetes' name)


class _Requirement(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    operator: str
    values: list[str] = msgspec.field(default_factory=list)


class _PullPolicy(enum.Enum):
    UNSAID = ""
    ALWAYS = "Always"
    NEVER = "Never"
    IF_NOT_PRESENT = "IfNotPresent"


def of(kind: Any, remedy: str) -> Read:
    """A reader of values of a type that msgspec knows; what it returns are plain values."""

    def read(value: Any) -> Any:
        try:
            return msgspec.to_builtins(msgspec.convert(value, kind))
        except msgspec.ValidationError as refusal:
            raise Wrong(str(refusal), remedy) from refusal

    return read


def checked(kind: Any, remedy: str) -> Read:
    """A reader that returns the value as it stands, if it could be of a type that msgspec knows."""
    check = of(kind, remedy)

    def read(value: Any) -> Any:
        check(value)
        return msgspec.to_builtins(value)

    return read


def anything(value: Any) -> Any:
    """Whatever it is."""
    return value


def text(value: Any) -> str:
    """Text; numbers and truth values as YAML writes them, which forgets the quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise Wrong("is not text", "write one value, in quotes")


def texts(value: Any) -> dict[str, str]:
    """Names with texts; a list of maps, as Flyte writes them to keep the case of names, is the same."""
    return {text(key): text(item) for key, item in _pairs(value).items()}


def quantity(value: Any) -> Quantity:
    """An amount, not negative."""
    try:
        amount = parse(text(value))
    except NotAQuantity as refusal:
        raise Wrong("is not a quantity", "write it as Kubernetes does, such as 2, 500m or 16Gi") from refusal
    if amount.nano < 0:
        raise Wrong("is negative", "write 0 or more")
    return amount


def quantities(value: Any) -> dict[str, Quantity]:
    """Amounts under resource names."""
    return {text(name): quantity(amount) for name, amount in _pairs(value).items()}


def tolerations_by_resource(value: Any) -> dict[str, Sequence[Manifest]]:
    """Tolerations under resource names."""
    return {text(name): tolerations(items) for name, items in _pairs(value).items()}


def _pairs(value: Any) -> Mapping[Any, Any]:
    parts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not all(isinstance(part, Mapping) for part in parts):
        raise Wrong("is not a map", "write names with values, as a map or a list of maps")
    return {key: item for part in parts for key, item in part.items()}


boolean: Final = of(bool, "write true or false")
names: Final = of(list[str], "write a list of names")
manifest: Final = of(dict[str, Any], "write it as in a pod's spec")
tolerations: Final = checked(
    list[_Toleration], "write a list of tolerations as in a pod's spec: key, operator, value, effect"
)
toleration: Final = checked(_Toleration, "write it as in a pod's spec: key, operator, value, effect")
requirement: Final = checked(_Requirement, "write a node selector requirement: key, operator, values")
pull_policy: Final = of(_PullPolicy, "write Always, Never or IfNotPresent")
