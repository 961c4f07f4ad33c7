"""The pods of a job, as the training operator creates them, and their total resource requests."""

from collections.abc import Mapping, Sequence
from typing import Final

from backend_plugin.core.quantity import Quantity
from backend_plugin.core.reading import get_int, get_mapping, get_mappings
from backend_plugin.core.scheduling import pod_requests
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import PlannedTask, RolePods
from backend_plugin.embedded.controller import objects
from backend_plugin.embedded.controller.job_spec import PORT, ROLES, read_job_spec
from backend_plugin.embedded.controller.upstream_fixes import UpstreamFixes

RENDEZVOUS: Final = PORT
"""The port at which replicas rendezvous."""


def build_role_pods(job: Manifest, scheduler_name: str = "") -> Sequence[RolePods]:
    """Return one pod for each replica role, and the number of its pods.

    Args:
        job: A PyTorchJob, as it is sent.
        scheduler_name: The scheduler name that the operator sets on pods without one; empty if it sets none.
    """
    known = read_job_spec(job, ROLES)
    least = get_int(get_mapping(job, "spec", "elasticPolicy"), "minReplicas")
    found = []
    for role in known.roles:
        made = objects.build_pod(known, role, 0, UpstreamFixes())
        metadata = {
            key: said for key, said in get_mapping(made, "metadata").items() if key != "ownerReferences"
        }
        spec = {**({"schedulerName": scheduler_name} if scheduler_name else {}), **get_mapping(made, "spec")}
        needed = role.replicas if least is None else min(role.replicas, least)
        pod = {**made, "metadata": metadata, "spec": spec}
        found.append(RolePods(name=role.label, count=role.replicas, needed=needed, pod=pod))
    return found


def compute_needed_requests(task: PlannedTask) -> Mapping[str, Quantity]:
    """Return the total requests of the pods that must be scheduled before the job starts."""
    parts = [
        pod_requests.scale_amounts(
            role.needed, pod_requests.compute_pod_requests(get_mapping(role.pod, "spec"))
        )
        for role in task.roles
    ]
    return {name: amount for name, amount in pod_requests.add_amounts(parts).items() if amount}


def compute_needed_limits(task: PlannedTask) -> Mapping[str, Quantity]:
    """Return the total limits of the same pods, because quotas count limits too."""
    parts = [
        pod_requests.scale_amounts(
            role.needed, pod_requests.compute_pod_requests(_with_limits_as_requests(role.pod))
        )
        for role in task.roles
    ]
    return {name: amount for name, amount in pod_requests.add_amounts(parts).items() if amount}


def _with_limits_as_requests(pod: Manifest) -> Manifest:
    """Return the pod spec with the limits in place of the requests."""
    spec = get_mapping(pod, "spec")
    return {
        **spec,
        **{
            part: [
                {**each, "resources": {"requests": get_mapping(each, "resources", "limits")}}
                for each in get_mappings(spec, part)
            ]
            for part in ("containers", "initContainers")
        },
    }


def count_needed_pods(task: PlannedTask) -> int:
    """Return the number of pods that must be scheduled before the job starts."""
    return sum(role.needed for role in task.roles)
