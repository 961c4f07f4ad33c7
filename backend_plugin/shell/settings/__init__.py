"""The settings of a server, from a file, environment variables and flags; later sources take precedence."""

from backend_plugin.shell.settings.loader import EffectiveSettings, Flags, SettingsSources, load_settings
from backend_plugin.shell.settings.model import ClusterKind, EmbeddedSettings, ServerSettings

__all__ = [
    "ClusterKind", "EffectiveSettings", "EmbeddedSettings", "Flags", "ServerSettings", "SettingsSources",
    "load_settings",
]  # fmt: skip
