"""The state machine of the training-operator as a pure function from observed objects to actions.

- attempt: the state of one pass.
- deviations: differences from training-operator 1.9.3.
- environment: the environment variables of a replica.
- events: the events of a job.
- job: the spec of a job, with the operator's defaults.
- limits: deadline, backoff limit and expiry.
- objects: the manifests of pods and services.
- one_pass: the stages of a pass, in order.
- replicas: the pods and services of one role.
- status: conditions, replica counts and times.
- values: input and output of a pass.
- verdict: the conditions that follow from the replica counts.
"""

from backend_plugin.embedded.controller.actions import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    JobSnapshot,
    ReconcileResult,
)
from backend_plugin.embedded.controller.events import build_action_event
from backend_plugin.embedded.controller.reconciler import reconcile, with_created_condition, with_recreations

__all__ = [
    "Action",
    "CreatePod",
    "CreateService",
    "DeleteJob",
    "DeletePod",
    "DeleteService",
    "JobSnapshot",
    "ReconcileResult",
    "build_action_event",
    "reconcile",
    "with_created_condition",
    "with_recreations",
]
