"""Validation and defaults of the emulated API server, for pods, services and custom resources."""

from backend_plugin.embedded.admission.patch import merge_patch
from backend_plugin.embedded.admission.pod import admit_pod
from backend_plugin.embedded.admission.service import admit_service

__all__ = ["admit_pod", "admit_service", "merge_patch"]
