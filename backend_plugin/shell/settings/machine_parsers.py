"""Parsers of server settings that depend on this machine or on the output stores.

They raise `InvalidSettingValue` for an invalid value.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from backend_plugin.core.settings import value_parsers
from backend_plugin.core.settings.engine import InvalidSettingValue
from backend_plugin.shell.output_prefixes import OutputPrefixes, PrefixNotAllowed

_PLACEHOLDER: Final = re.compile(r"\{\{ {0,8}(?:org|project|domain) {0,8}\}\}")
_NAMESPACE: Final = re.compile(r"[a-z0-9*?-]{1,253}")


def parse_path(value: Any) -> Path:
    """Parse a path of this machine and make it absolute; ``~`` is the home of the user of this process."""
    written = value_parsers.text(value)
    if not written or "\0" in written:
        raise InvalidSettingValue("is not a path", "write a path, or remove the setting")
    try:
        expanded = Path(written).expanduser()
        return Path(os.path.abspath(expanded))  # noqa: PTH100 - removes `..` and, unlike resolve(), keeps links.
    except RuntimeError as error:
        raise InvalidSettingValue(
            "is the home directory of an unknown user", "write the absolute path"
        ) from error


def parse_prefixes(value: Any) -> Sequence[str]:
    """Parse a list of output prefixes: buckets and directories."""
    written = value_parsers.names(value)
    try:
        OutputPrefixes(written)
    except PrefixNotAllowed as refusal:
        raise InvalidSettingValue(
            f"is not a list of locations: {refusal}", "write s3://bucket/, gs://* or file:///directory"
        ) from refusal
    return written


def parse_namespace_template(value: Any) -> str:
    """Parse a namespace name or shell pattern, which may contain placeholders such as ``{{ project }}``."""
    written = value_parsers.text(value).strip()
    if not _NAMESPACE.fullmatch(_PLACEHOLDER.sub("x", written)):
        raise InvalidSettingValue(
            "is not a namespace template",
            "write Flyte's namespace_mapping.template, such as {{ project }}-{{ domain }}, or * for any",
        )
    return written
