"""Pruning, defaults and limits of the emulated API server, for pods, services and custom resources.

`core.pipeline.plan` has validated the jobs, because only this server creates them.
"""

from backend_plugin.embedded.admission.pod import admit_pod, with_service_defaults

__all__ = ["admit_pod", "with_service_defaults"]
