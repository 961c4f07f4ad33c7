"""The platform's settings: Flyte's ``plugins.k8s`` section under its own names, ours beside it.

`read` makes them; nothing else does.
"""

from backend_plugin.core.settings.pod_security import PodSecurity, PodSecurityMode
from backend_plugin.core.settings.reading import read
from backend_plugin.core.settings.values import Ours, Settings, TaskResources

__all__ = ["Ours", "PodSecurity", "PodSecurityMode", "Settings", "TaskResources", "read"]
