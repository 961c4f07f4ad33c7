"""The settings of a server, from a file, environment variables and flags; later sources take precedence."""

from backend_plugin.shell.settings.reading import Flags, InForce, Sources, read
from backend_plugin.shell.settings.values import ClusterKind, Embedded, ServerSettings

__all__ = ["ClusterKind", "Embedded", "Flags", "InForce", "ServerSettings", "Sources", "read"]
