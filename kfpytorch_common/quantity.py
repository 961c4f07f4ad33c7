"""Kubernetes quantities: parsing, arithmetic and canonical text, as in apimachinery's `resource` package."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

_NUMBER: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]{0,60})(?:\.(?P<part>[0-9]{0,60}))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?0{0,60}[0-9]{1,2}))?"
)
_NANO: Final = 10**9
_DECIMAL: Final = {name: 3 * power for power, name in enumerate(("n", "u", "m", "", *"kMGTPE"), start=-3)}
_DECIMAL_NAMES: Final = {exponent: name for name, exponent in _DECIMAL.items()}
_BINARY: Final = {name + "i": 10 * power for power, name in enumerate("KMGTPE", start=1)}
_BINARY_NAMES: Final = ("", *_BINARY)
# Kubernetes limits quantities with a binary suffix to the range of int64.
_MOST_BYTES: Final = (2**63 - 1) * _NANO
# The longest accepted text; exact arithmetic on longer numbers would be slow.
_LONGEST: Final = 60
# The most digits of a text that Kubernetes keeps unchanged if it is already canonical.
_SHORT: Final = 18
_SHORT_BINARY: Final = 14


class InvalidQuantity(ValueError):
    """The text is not a valid Kubernetes quantity."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A Kubernetes quantity. Quantities with the same value are equal even if their texts differ."""

    nano: int
    """The value in billionths (1e-9), the smallest step of a Kubernetes quantity."""
    text: str = field(compare=False)
    """The canonical text: ``500m`` for ``0.5``, ``1Gi`` for ``1024Mi``."""

    def __bool__(self) -> bool:
        return self.nano != 0

    @property
    def whole(self) -> int:
        """The value rounded down to a whole number."""
        return self.nano // _NANO

    @property
    def is_whole(self) -> bool:
        """True if the value is a whole number."""
        return self.nano % _NANO == 0


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """Parse a quantity such as ``2``, ``0.5``, ``500m``, ``16Gi`` or ``1e3``.

    Raises:
        InvalidQuantity: If the text is invalid or longer than 60 characters.
    """
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidQuantity(text)
    whole, part = match["whole"].lstrip("0") or "0", match["part"] or ""
    number, parts = int(match["sign"] + whole + part), 10 ** len(part)
    if match["suffix"] in _BINARY:
        power = _BINARY[match["suffix"]]
        nano = _divide_away_from_zero(number * 2**power * _NANO, parts)
        return _build_binary(text, nano, whole + "." * bool(part), power)
    power = int(match["exponent"]) if match["exponent"] else _DECIMAL[match["suffix"] or ""]
    nano = _divide_away_from_zero(number * _NANO * 10 ** max(power, 0), parts * 10 ** max(-power, 0))
    if _is_canonical(whole + part, power - len(part)):
        return Quantity(nano, text)
    return Quantity(nano, _format_decimal(nano, exponential=match["exponent"] is not None))


def add_quantities(amounts: Iterable[Quantity]) -> Quantity:
    """Return the sum. Its text has a binary suffix, such as ``Gi``, if one of `amounts` has such a suffix."""
    terms = [*amounts]
    return _build_quantity(
        sum(each.nano for each in terms), binary=any(each.text.endswith("i") for each in terms)
    )


def multiply_quantity(count: int, amount: Quantity) -> Quantity:
    """Return the quantity `amount` multiplied by `count`."""
    return _build_quantity(count * amount.nano, binary=amount.text.endswith("i"))


def subtract_quantity(one: Quantity, other: Quantity) -> Quantity:
    """Return the quantity `one` minus `other`. The result may be negative."""
    return _build_quantity(one.nano - other.nano, binary=one.text.endswith("i") or other.text.endswith("i"))


def with_binary_suffix(amount: Quantity) -> Quantity:
    """Return a quantity with the same value, whose text has a binary suffix, such as ``16Gi``.

    For an amount below 1024 or a fraction, the text is decimal, such as ``500m``, so that it is exact.
    """
    return _build_quantity(amount.nano, binary=True)


def _build_quantity(nano: int, *, binary: bool) -> Quantity:
    return Quantity(nano, _format_binary(nano) if binary else _format_decimal(nano))


def _is_canonical(digits: str, power: int) -> bool:
    return (
        len(digits) <= _SHORT
        and power in range(-9, 100, 3)
        and not digits.endswith("000")
        and not digits.startswith("0")
    )


def _build_binary(text: str, nano: int, digits: str, power: int) -> Quantity:
    nano = max(min(nano, _MOST_BYTES), -_MOST_BYTES)
    # Kubernetes checks only the last three bits: if one of them is set, it keeps the text.
    if digits.isdigit() and int(digits) % 8 and len(digits) + power * 3 // 10 <= _SHORT_BINARY:
        return Quantity(nano, text)
    return Quantity(nano, _format_binary(nano))


def _divide_away_from_zero(number: int, parts: int) -> int:
    """Divide `number` by `parts`, and round away from zero, so that a small quantity does not become zero."""
    return -(-number // parts) if number >= 0 else number // parts


def _format_decimal(nano: int, *, exponential: bool = False) -> str:
    if nano == 0:
        return "0"
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0 and (exponential or exponent < _DECIMAL["E"]):
        mantissa, exponent = mantissa // 1000, exponent + 3
    if exponential:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAMES[exponent]}"


def _format_binary(nano: int) -> str:
    mantissa, rest = divmod(nano, _NANO)
    # Small and fractional amounts get a decimal suffix, so that they stay exact.
    if rest or -1024 < mantissa < 1024:
        return _format_decimal(nano)
    power = 0
    while mantissa % 1024 == 0 and power < len(_BINARY):
        mantissa, power = mantissa // 1024, power + 1
    return f"{mantissa}{_BINARY_NAMES[power]}"
