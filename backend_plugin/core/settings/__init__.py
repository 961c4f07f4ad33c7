"""The platform's settings: Flyte's ``plugins.k8s`` section under its own names, ours beside it."""

from backend_plugin.core.settings.values import Settings

__all__ = ["Settings"]
