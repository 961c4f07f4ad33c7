"""Parsers for the values of server settings, from YAML or from the text of a variable or flag.

Parsers that the platform's settings also use are in `core.settings.value_parsers`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from backend_plugin.core.settings import value_parsers
from backend_plugin.core.settings.value_parsers import InvalidSettingValue, Read
from backend_plugin.shell.output_prefixes import OutputPrefixes, PrefixNotAllowed

_TRUTH: Final = {"true": True, "false": False}
_SMALLEST: Final = 64 * 2**10
# gRPC stores the length of a message in a signed 32-bit integer.
_LARGEST: Final = 2**31 - 1
_MOST: Final = 1_000_000
_PLACEHOLDER: Final = re.compile(r"\{\{ {0,8}(?:org|project|domain) {0,8}\}\}")
_NAMESPACE: Final = re.compile(r"[a-z0-9*?-]{1,253}")


def parse_boolean(value: Any) -> bool:
    """Parse true or false."""
    said = value_parsers.text(value).lower()
    if said not in _TRUTH:
        raise InvalidSettingValue("is neither true nor false", "write true or false")
    return _TRUTH[said]


def build_count_parser(least: int, most: int = _MOST) -> Read:
    """Return a parser for a whole number from `least` to `most`."""

    def read(value: Any) -> int:
        said = value_parsers.text(value)
        if not said.isascii() or not said.isdigit() or not least <= int(said[:20]) <= most:
            raise InvalidSettingValue(
                "is not a number in the valid range", f"write a whole number from {least} to {most}"
            )
        return int(said)

    return read


def parse_size(value: Any) -> int:
    """Parse the maximum size of a message as a number of bytes."""
    amount = value_parsers.quantity(value).whole
    if not _SMALLEST <= amount <= _LARGEST:
        raise InvalidSettingValue("is not a valid message size", "write 64Ki to 2047Mi")
    return amount


def parse_path(value: Any) -> Path:
    """Parse an absolute path of this machine; ``~`` is the home of the user that runs the server."""
    said = value_parsers.text(value)
    if not said or "\0" in said:
        raise InvalidSettingValue("is not a path", "write a path, or remove the setting")
    try:
        whole = Path(said).expanduser()
        return Path(os.path.abspath(whole))  # noqa: PTH100 - removes `..` and, unlike resolve(), keeps links.
    except RuntimeError as error:
        raise InvalidSettingValue(
            "is the home directory of an unknown user", "write the absolute path"
        ) from error


def build_choice_parser(*words: str) -> Read:
    """Return a parser that accepts one of these words."""

    def read(value: Any) -> str:
        said = value_parsers.text(value).lower()
        if said not in words:
            raise InvalidSettingValue("is not a valid value", f"write {' or '.join(words)}")
        return said

    return read


def parse_list(value: Any) -> Sequence[str]:
    """Parse a list of texts, or one text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence):
        raise InvalidSettingValue("is not a list", "write a list of names, or one text with commas")
    return tuple(said for part in parts for said in [value_parsers.text(part).strip()] if said)


def parse_prefixes(value: Any) -> Sequence[str]:
    """Parse a list of output prefixes: buckets and directories."""
    said = parse_list(value)
    try:
        OutputPrefixes(said)
    except PrefixNotAllowed as refusal:
        raise InvalidSettingValue(
            f"is not a list of locations: {refusal}", "write s3://bucket/, gs://* or file:///directory"
        ) from refusal
    return said


def parse_namespace_template(value: Any) -> str:
    """Parse a namespace name that may contain ``{{ project }}`` and ``{{ domain }}``."""
    said = value_parsers.text(value).strip()
    if not _NAMESPACE.fullmatch(_PLACEHOLDER.sub("x", said)):
        raise InvalidSettingValue(
            "is not a namespace template",
            "write Flyte's namespace_mapping.template, such as {{ project }}-{{ domain }}, or * for any",
        )
    return said


def parse_text_map(value: Any) -> Mapping[str, str]:
    """Parse a map of texts, or one text of the form ``name=text,name=text``."""
    if isinstance(value, Mapping):
        return value_parsers.text_map(value)
    pairs = [each.partition("=") for each in parse_list(value)]
    if any(not (name and equals) for name, equals, _ in pairs):
        raise InvalidSettingValue("is not a map", "write names with values: a map, or name=value,name=value")
    return {name.strip(): said.strip() for name, _, said in pairs}
