"""Validation and defaults of the emulated API server, for pods, services and custom resources."""

from backend_plugin.embedded.admission.pod import admit_pod, admit_service
from backend_plugin.embedded.objects import merge_patch

__all__ = ["admit_pod", "admit_service", "merge_patch"]
