"""Validation and defaults of the API server. An operator validates its own jobs with these parts.

- api_errors: the errors of the API server.
- containers: the containers of a pod.
- metadata: rules for the metadata of every kind.
- name_rules: rules for names.
- patch: merge patches.
- pod: creation of a pod.
- pod_tables: the schema of pods in custom resources.
- schema: pruning, defaults and types of custom resources.
- service: creation of a service.
"""

from backend_plugin.embedded.admission.patch import merge_patch
from backend_plugin.embedded.admission.pod import admit_pod
from backend_plugin.embedded.admission.service import admit_service

__all__ = ["admit_pod", "admit_service", "merge_patch"]
