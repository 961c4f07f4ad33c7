"""A job's pods, as its operator makes them, and what they need all together."""

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
"""Where replicas find each other."""


def of(job: Manifest, scheduler_name: str = "") -> Sequence[RolePods]:
    """One pod for each role, and how many there are of it.

    Args:
        job: A PyTorchJob as it is sent.
        scheduler_name: What the operator writes into pods that say nothing; empty: it writes nothing.
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
    """What those need that must find a place before the job begins."""
    parts = [requests.times(role.needed, requests.of_pod(section(role.pod, "spec"))) for role in task.roles]
    return {name: amount for name, amount in requests.summed(parts).items() if amount}


def limits(task: Task) -> Mapping[str, Quantity]:
    """The same of limits, which quotas count, too."""
    parts = [requests.times(role.needed, requests.of_pod(_limited(role.pod))) for role in task.roles]
    return {name: amount for name, amount in requests.summed(parts).items() if amount}


def _limited(pod: Manifest) -> Manifest:
    """A spec that asks for its limits."""
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
    """How many pods those are."""
    return sum(role.needed for role in task.roles)
