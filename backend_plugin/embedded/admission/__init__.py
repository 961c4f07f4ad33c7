"""Validation and defaults of the API server and of the operator's webhook.

- containers: the containers of a pod.
- job: creation and update of a PyTorchJob.
- job_types: tables of the custom resource definition.
- metadata: rules for the metadata of every kind.
- names: rules for names.
- patch: merge patches.
- pod: creation of a pod.
- refusal: the errors of the API server.
- schema: pruning, defaults and types.
- service: creation of a service.
- webhook: rules of the operator's webhook.
"""

from backend_plugin.embedded.admission.job import admit_job, admit_job_update
from backend_plugin.embedded.admission.patch import merge_patch
from backend_plugin.embedded.admission.pod import admit_pod
from backend_plugin.embedded.admission.service import admit_service

__all__ = ["admit_job", "admit_job_update", "admit_pod", "admit_service", "merge_patch"]
