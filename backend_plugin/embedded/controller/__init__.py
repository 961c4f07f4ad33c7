"""The training-operator's state machine, as a function: a job and what there is of it → what is to be done.

attempt: one pass under way.
deviations: where this is better than training-operator 1.9.3.
environment: what a replica is told of the others.
events: what is said of a job.
job: a job's spec, with the operator's defaults.
limits: deadline, restarts, expiry.
objects: the pods and services that are made.
one_pass: the pass, in its order.
replicas: one role's pods and services.
status: conditions, numbers and times.
values: what goes in and comes out.
verdict: what the pods mean for the job.
"""

from backend_plugin.embedded.controller.events import of_action
from backend_plugin.embedded.controller.one_pass import counted, created, reconcile
from backend_plugin.embedded.controller.values import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    Seen,
    Step,
)

__all__ = [
    "Action",
    "CreatePod",
    "CreateService",
    "DeleteJob",
    "DeletePod",
    "DeleteService",
    "Seen",
    "Step",
    "counted",
    "created",
    "of_action",
    "reconcile",
]
