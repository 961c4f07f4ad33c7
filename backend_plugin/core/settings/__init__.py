"""The platform settings: Flyte's ``plugins.k8s`` section, with our own keys below ``kfpytorch``."""

from backend_plugin.core.settings.loader import read
from backend_plugin.core.settings.model import (
    PluginSettings,
    PodSecurityMode,
    PodSecuritySettings,
    Settings,
    TaskResources,
)

__all__ = ["PluginSettings", "PodSecurityMode", "PodSecuritySettings", "Settings", "TaskResources", "read"]
