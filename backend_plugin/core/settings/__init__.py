"""The platform settings: Flyte's ``plugins.k8s`` section, with our own keys below ``kfpytorch``.

`read` creates them.
"""

from backend_plugin.core.settings.pod_security import PodSecurity, PodSecurityMode
from backend_plugin.core.settings.reading import read
from backend_plugin.core.settings.values import Ours, Settings, TaskResources

__all__ = ["Ours", "PodSecurity", "PodSecurityMode", "Settings", "TaskResources", "read"]
