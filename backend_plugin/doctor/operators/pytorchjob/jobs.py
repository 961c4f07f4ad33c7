"""Builds the PyTorchJobs of the doctor, and the pods that the training operator creates for them."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_int, get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import RolePods
from backend_plugin.doctor.operators.base import KEPT_SECONDS
from backend_plugin.embedded.objects import merge_patch
from backend_plugin.embedded.operators.pytorchjob import job_spec, objects

_DIALECT: Final = DIALECTS["PyTorchJob"]
_REPLICA_SPECS: Final = "pytorchReplicaSpecs"
_MASTER: Final = "Master"


def build_role_pods(job: Manifest, _: Sequence[Manifest] = ()) -> Sequence[RolePods]:
    """Return the pods of each role as the embedded cluster's operator builds them, without owners."""
    spec = job_spec.read_job_spec(job, job_spec.ROLES)
    least = get_int(job, "spec", "elasticPolicy", "minReplicas")
    found = []
    for role in spec.roles:
        needed = role.replicas if least is None else min(role.replicas, least)
        pod = merge_patch(objects.build_pod(spec, role, 0), {"metadata": {"ownerReferences": None}})
        found.append(RolePods(name=role.label, count=role.replicas, needed=needed, pod=pod))
    return found


def build_invalid_job(namespace: str) -> Manifest:
    """Return a job that every training operator with a webhook rejects, because it has two masters."""
    probe = _DIALECT.build_probe({"name": "kfpytorch-doctor", "namespace": namespace})
    master = get_mapping(probe, "spec", _REPLICA_SPECS, _MASTER)
    return {**probe, "spec": {_REPLICA_SPECS: {_MASTER: {**master, "replicas": 2}}}}


def build_trial(planned: Plan, change_template: Callable[[Manifest], Manifest], seconds: int) -> Plan:
    """Return the plan of a trial job: no retries, a deadline of `seconds`, and changed pod templates.

    The operator keeps the pods, so that their logs can be read.
    """
    spec = get_mapping(planned.job, "spec")
    roles = get_mapping(spec, _REPLICA_SPECS)
    patch: Manifest = {
        _REPLICA_SPECS: {
            role: {
                "restartPolicy": "Never",
                "template": change_template(get_mapping(roles, role, "template")),
            }
            for role in roles
        },
        "runPolicy": {
            # With it, the operator deletes all pods when the limit is exceeded, and ignores cleanPodPolicy.
            "backoffLimit": None,
            "cleanPodPolicy": "None",  # The logs of the pods are read afterwards.
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "activeDeadlineSeconds": seconds,
        },
        **({"elasticPolicy": {"maxRestarts": 0}} if "elasticPolicy" in spec else {}),
    }
    return structs.replace(planned, job=merge_patch(planned.job, {"spec": patch}))
