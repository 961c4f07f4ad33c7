"""Pruning, defaults and limits of the emulated API server, for pods, services and custom resources.

Jobs are not validated again: only this server creates jobs, and `core.pipeline.plan` has validated them.
"""

from backend_plugin.embedded.admission.pod import admit_pod, with_service_defaults

__all__ = ["admit_pod", "with_service_defaults"]
