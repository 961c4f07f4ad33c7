"""The pods of a job, as the training operator creates them, and their total resource requests."""

from collections.abc import Mapping, Sequence
from typing import Final

from backend_plugin.core.quantity import Quantity
from backend_plugin.core.reading import entries, number, section
from backend_plugin.core.scheduling import requests
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import RolePods, Task
from backend_plugin.embedded.controller import objects
from backend_plugin.embedded.controller.deviations import Deviations
from backend_plugin.embedded.controller.job import PORT, ROLES, read

RENDEZVOUS: Final = PORT
"""The port at which replicas rendezvous."""


def of(job: Manifest, scheduler_name: str = "") -> Sequence[RolePods]:
    """Return one pod for each replica role, and the number of its pods.

    Args:
        job: A PyTorchJob, as it is sent.
        scheduler_name: The scheduler name that the operator sets on pods without one; empty if it sets none.
    """
    known = read(job, ROLES)
    least = number(section(job, "spec", "elasticPolicy"), "minReplicas")
    found = []
    for role in known.roles:
        made = objects.pod(known, role, 0, Deviations())
        metadata = {key: said for key, said in section(made, "metadata").items() if key != "ownerReferences"}
        spec = {**({"schedulerName": scheduler_name} if scheduler_name else {}), **section(made, "spec")}
        needed = role.replicas if least is None else min(role.replicas, least)
        pod = {**made, "metadata": metadata, "spec": spec}
        found.append(RolePods(name=role.label, count=role.replicas, needed=needed, pod=pod))
    return found


def needed(task: Task) -> Mapping[str, Quantity]:
    """Return the total requests of the pods that must be scheduled before the job starts."""
    parts = [requests.times(role.needed, requests.of_pod(section(role.pod, "spec"))) for role in task.roles]
    return {name: amount for name, amount in requests.summed(parts).items() if amount}


def limits(task: Task) -> Mapping[str, Quantity]:
    """Return the total limits of the same pods, because quotas count limits too."""
    parts = [requests.times(role.needed, requests.of_pod(_limited(role.pod))) for role in task.roles]
    return {name: amount for name, amount in requests.summed(parts).items() if amount}


def _limited(pod: Manifest) -> Manifest:
    """Return the pod spec with the limits in place of the requests."""
    spec = section(pod, "spec")
    return {
        **spec,
        **{
            part: [
                {**each, "resources": {"requests": section(each, "resources", "limits")}}
                for each in entries(spec, part)
            ]
            for part in ("containers", "initContainers")
        },
    }


def count(task: Task) -> int:
    """Return the number of pods that must be scheduled before the job starts."""
    return sum(role.needed for role in task.roles)
