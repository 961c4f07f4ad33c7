"""The rules of Kubernetes for names, labels and environment variables.

Each function returns the rules that a value breaks; an empty list means a valid value.
"""

import re
from typing import Final

_LABEL: Final = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_QUALIFIED: Final = re.compile("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE: Final = re.compile(f"({_QUALIFIED.pattern})?")
_PORT_NAME: Final = re.compile("(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")

_LABEL_LENGTH: Final = 63
_SUBDOMAIN_LENGTH: Final = 253
_PORT_NAME_LENGTH: Final = 15
_LOOKED_AT: Final = 4_096


def check_subdomain(value: str) -> list[str]:
    """Return the rules that `value` breaks as a DNS subdomain, the form of most object names."""
    return _check_pattern(value, _SUBDOMAIN, _SUBDOMAIN_LENGTH)


def check_dns_label(value: str) -> list[str]:
    """Return the rules that `value` breaks as the name of a namespace, container or volume."""
    return _check_pattern(value, _LABEL, _LABEL_LENGTH)


def check_qualified_name(value: str) -> list[str]:
    """Return the rules that `value` breaks as the key of a label or annotation, or the name of a resource."""
    prefix, slash, name = value.rpartition("/")
    wrong = [f"prefix part {each}" for each in check_subdomain(prefix)] if slash else []
    return [*wrong, *(f"name part {each}" for each in _check_pattern(name, _QUALIFIED, _LABEL_LENGTH))]


def check_label_value(value: str) -> list[str]:
    """Return the rules that `value` breaks as the value of a label."""
    return _check_pattern(value, _LABEL_VALUE, _LABEL_LENGTH)


def check_variable_name(value: str) -> list[str]:
    """Return the rules of Kubernetes 1.34 that `value` breaks as the name of an environment variable."""
    is_valid = value.isascii() and value.isprintable() and "=" not in value
    return [] if is_valid else ["must consist of printable ASCII characters other than '='"]


def check_port_name(value: str) -> list[str]:
    """Return the rules that `value` breaks as the name of a container port."""
    return _check_pattern(value, _PORT_NAME, _PORT_NAME_LENGTH)


def _check_pattern(value: str, pattern: re.Pattern[str], most: int) -> list[str]:
    if len(value) <= most and pattern.fullmatch(value):  # Then it is ASCII, so each character is one byte.
        return []
    too_long = [f"must be no more than {most} characters"] if len(value.encode()) > most else []
    # A longer value is rejected for its length alone, without a slow match.
    matches = len(value) > _LOOKED_AT or pattern.fullmatch(value)
    rule = f"must match the regular expression '{pattern.pattern}'"
    return [*too_long, *([] if matches else [rule])]
