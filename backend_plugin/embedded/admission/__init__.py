"""Pruning, defaults and limits of the emulated API server, for pods, services and custom resources.

`core.pipeline.plan` has validated the jobs, because only this server creates them.
"""

from backend_plugin.embedded.admission.pod import admit_pod, with_service_defaults
from backend_plugin.embedded.objects import merge_patch

__all__ = ["admit_pod", "merge_patch", "with_service_defaults"]
