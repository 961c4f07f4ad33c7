"""What the API server and the operator's webhook refuse and fill in, so that what passes here passes there.

containers: the containers of a pod.
job: a PyTorchJob, new or changed.
job_types: the tables of its custom resource definition.
metadata: what holds for every kind.
names: what may be a name.
patch: a merge patch.
pod: a pod that the controller makes.
refusal: how an API server says no.
schema: unknown fields, defaults, types.
service: a service that the controller makes.
webhook: the operator's own rules.
"""

from backend_plugin.embedded.admission.job import admit, admit_update
from backend_plugin.embedded.admission.patch import merge_patch
from backend_plugin.embedded.admission.pod import admit_pod
from backend_plugin.embedded.admission.service import admit_service

__all__ = ["admit", "admit_pod", "admit_service", "admit_update", "merge_patch"]
