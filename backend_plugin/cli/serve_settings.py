"""What ``kfpytorch serve`` goes by: a file, the environment, and flags.

One file for both halves: a section ``server``, read by `shell.settings`, beside Flyte's ``plugins``.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from backend_plugin.cli import files
from backend_plugin.cli.ends import Unreadable
from backend_plugin.core import settings as platform
from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.shell import settings as server
from backend_plugin.shell import small_files, yaml_text
from backend_plugin.shell.settings import Flags, InForce
from backend_plugin.shell.settings.reading import KEYS, flag_of

T = TypeVar("T")

_SECTION: Final = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All that a server is told."""

    server: InForce
    platform: platform.Settings


def read(file: str | None, flags: Flags) -> Configuration:
    """What is in force.

    Raises:
        Unreadable: If the file cannot be read, or is no mapping.
        InvalidSettings: With every problem of both parts.
    """
    document = {} if file is None else _document(Path(file))
    section = document.pop(_SECTION, None) or {}
    sources = server.Sources(section=section, file=file or "", environ=os.environ, flags=flags)
    problems: list[Problem] = []
    ours = _or_problems(lambda: server.read(sources), problems)
    flytes = _or_problems(lambda: platform.read(files.section(document, file or ""), os.environ), problems)
    if ours is None or flytes is None:
        raise InvalidSettings(*problems)
    return Configuration(server=ours, platform=flytes)


def _or_problems(read: Callable[[], T], problems: list[Problem]) -> T | None:
    try:
        return read()
    except InvalidSettings as refusal:
        problems += refusal.problems
        return None


def _document(file: Path) -> dict[str, Any]:
    import yaml

    try:
        # Bytes: YAML knows its encodings, byte order marks included.
        with file.open("rb") as source:
            found = yaml_text.documents(small_files.all_of(source))
    except OSError as error:
        raise Unreadable(f"settings {file}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(f"settings {file}: is not YAML: {error}") from error
    documents = [each for each in found if each is not None]
    if len(documents) > 1:
        raise Unreadable(f"settings {file}: has more than one document; write one")
    said = documents[0] if documents else {}
    if not isinstance(said, Mapping):
        raise Unreadable(f"settings {file}: hold no mapping; write a section server, and Flyte's plugins")
    return dict(said)


def flags(typed: Mapping[str, Any]) -> Flags:
    """What was typed, by the keys of settings: ``tls_key`` is ``tls.key``, ``nodes`` ``embedded.nodes``."""
    keys = {flag_of(key).lstrip("-").replace("-", "_"): key for key in KEYS}
    return {keys[name]: value for name, value in typed.items()}
