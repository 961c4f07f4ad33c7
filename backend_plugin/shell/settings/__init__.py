"""What a server is told: by a file, by its environment and by flags, each later one before the earlier.

`read` makes them; nothing else does.
"""

from backend_plugin.shell.settings.reading import Flags, InForce, Sources, read
from backend_plugin.shell.settings.values import ClusterKind, Embedded, ServerSettings

__all__ = ["ClusterKind", "Embedded", "Flags", "InForce", "ServerSettings", "Sources", "read"]
