"""What Kubernetes takes for labels and for names of objects; both halves refuse what it would refuse."""

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
    """Whether a label may be called so."""
    match = _KEY.fullmatch(text)
    prefix = match and match["prefix"]
    return match is not None and (prefix is None or is_subdomain(prefix[:-1]))


def is_value(text: str) -> bool:
    """Whether a label may say so."""
    return _VALUE.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether an object such as a PriorityClass may be called so."""
    return len(text) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None
