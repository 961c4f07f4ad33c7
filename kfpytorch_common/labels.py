"""Check the syntax of Kubernetes label keys, label values and object names."""

import re
from typing import Final

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE: Final = re.compile(f"({_NAME})?")
_KEY: Final = re.compile(f"(?P<prefix>[^/]{{1,253}}/)?{_NAME}")
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?){0,126}"
)
_LONGEST_SUBDOMAIN: Final = 253

KEY: Final = "at most 63 letters, digits, '-', '_' and '.', after a domain and '/' or by itself"
VALUE: Final = "at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"
SUBDOMAIN: Final = "lower-case letters, digits, '-' and '.', a letter or digit at both ends"


def is_key(text: str) -> bool:
    """True if `text` is a valid key of a Kubernetes label."""
    match = _KEY.fullmatch(text)
    prefix = match and match["prefix"]
    return match is not None and (prefix is None or is_subdomain(prefix[:-1]))


def is_value(text: str) -> bool:
    """True if `text` is a valid value of a Kubernetes label."""
    return _VALUE.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """True if `text` is a valid name (a DNS subdomain) of a Kubernetes object such as a PriorityClass."""
    return len(text) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None
