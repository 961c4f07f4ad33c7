"""Reads the settings of ``kfpytorch serve`` from a file, the environment and flags."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from backend_plugin.cli import input_files
from backend_plugin.core import settings as platform
from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.shell import settings as server
from backend_plugin.shell.settings import EffectiveSettings, Flags
from backend_plugin.shell.settings.loader import KEYS, get_flag

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings of a server and of the platform."""

    server: EffectiveSettings
    platform: platform.Settings
    section: Mapping[str, Any]
    """The platform settings in the file."""


def read_configuration(file: str | None, flags: Flags) -> Configuration:
    """Return the effective settings.

    Raises:
        UnusableInput: If the file cannot be read, or is not a mapping.
        InvalidSettings: If a setting is invalid; with every problem of the server's and of the
            platform's settings.
    """
    document = input_files.read_document(file)
    section = document.pop(input_files.SERVER_SECTION, None) or {}
    sources = server.SettingsSources(section=section, file=file or "", environ=os.environ, flags=flags)
    problems = [*input_files.find_misplaced_sections(document)]
    server_settings = _collect_problems(lambda: server.load_settings(sources), problems)
    flyte_section = input_files.get_plugin_section(document, file)
    flytes = _collect_problems(lambda: platform.read(flyte_section, os.environ), problems)
    if problems or server_settings is None or flytes is None:
        raise InvalidSettings(*problems)
    return Configuration(server=server_settings, platform=flytes, section=flyte_section)


def _collect_problems(read: Callable[[], T], problems: list[Problem]) -> T | None:
    try:
        return read()
    except InvalidSettings as refusal:
        problems += refusal.problems
        return None


def build_flags(typed: Mapping[str, Any]) -> Flags:
    """Map options to settings: ``tls_key`` to ``tls.key``, ``nodes`` to ``embedded.nodes``."""
    keys = {get_flag(key).lstrip("-").replace("-", "_"): key for key in KEYS}
    return {keys[name]: value for name, value in typed.items()}
