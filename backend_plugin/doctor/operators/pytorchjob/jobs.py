"""The PyTorchJobs of the doctor, and the pods that the training operator creates for one."""

from collections.abc import Callable, Sequence
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor.facts import RolePods
from backend_plugin.doctor.operators.base import JobManifests, TrialLimits

_DIALECT: Final = DIALECTS["PyTorchJob"]
_REPLICA_SPECS: Final = "pytorchReplicaSpecs"
_MASTER: Final = "Master"
_ROLES: Final = (_MASTER, "Worker")
_INIT_RESOURCES: Final = {
    "limits": {"cpu": "100m", "memory": "20Mi"},
    "requests": {"cpu": "50m", "memory": "10Mi"},
}
"""The resources of the init container that the operator adds to workers."""


def build_role_pods(job: Manifest, _: Sequence[Manifest] = ()) -> Sequence[RolePods]:
    """Return the pods of each role, without the variables that the operator adds."""
    specs = get_mapping(job, "spec", _REPLICA_SPECS)
    least = get_int(job, "spec", "elasticPolicy", "minReplicas")
    found = []
    for role in (each for each in _ROLES if each in specs):
        said = get_int(specs, role, "replicas")
        count = 1 if said is None else said
        needed = count if least is None else min(count, least)
        found.append(RolePods(name=role.lower(), count=count, needed=needed, pod=_build_pod(job, role)))
    return found


def _build_pod(job: Manifest, role: str) -> Manifest:
    specs, labels = get_mapping(job, "spec", _REPLICA_SPECS), _DIALECT.labels
    template = get_mapping(specs, role, "template")
    metadata, job_metadata = get_mapping(template, "metadata"), get_mapping(job, "metadata")
    name = get_text(job_metadata, "name")
    prefix = labels.job_name.partition("/")[0]
    own = {
        f"{prefix}/operator-name": "pytorchjob-controller",
        labels.job_name: name,
        labels.role: role.lower(),
        labels.index: "0",
    }
    if role == _MASTER or _MASTER not in specs:
        own[f"{prefix}/job-role"] = "master"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{role.lower()}-0",
            "namespace": get_text(job_metadata, "namespace"),
            "labels": {**get_text_map(metadata, "labels"), **own},
            **{key: metadata[key] for key in ("annotations", "finalizers") if metadata.get(key)},
        },
        "spec": _build_pod_spec(specs, role),
    }


def _build_pod_spec(specs: Manifest, role: str) -> Manifest:
    spec = get_mapping(specs, role, "template", "spec")
    policy = get_text(specs, role, "restartPolicy") or "OnFailure"
    made = {
        **spec,
        "containers": [_with_port(each) for each in get_mappings(spec, "containers")],
        "restartPolicy": "Never" if policy == "ExitCode" else policy,
    }
    if role != _MASTER and _MASTER in specs:
        (name,) = _DIALECT.operator_containers
        waiting: Manifest = {"name": name, "image": "alpine:3.10", "resources": _INIT_RESOURCES}
        made["initContainers"] = [*get_mappings(spec, "initContainers"), waiting]
    return made


def _with_port(container: Manifest) -> Manifest:
    ports, port = get_mappings(container, "ports"), _DIALECT.port
    if get_text(container, "name") != _DIALECT.container or port.name in [each.get("name") for each in ports]:
        return container
    return {**container, "ports": [*ports, {"name": port.name, "containerPort": port.number}]}


def build_invalid_job(namespace: str) -> Manifest:
    """Return a job that every training operator with a webhook rejects, because it has two masters."""
    probe = _DIALECT.build_probe({"name": "kfpytorch-doctor", "namespace": namespace})
    master = get_mapping(probe, "spec", _REPLICA_SPECS, _MASTER)
    return {**probe, "spec": {_REPLICA_SPECS: {_MASTER: {**master, "replicas": 2}}}}


def build_trial(
    planned: JobManifests, change_template: Callable[[Manifest], Manifest], limits: TrialLimits
) -> JobManifests:
    """Return a job with changed pod templates and with these limits, which is never retried."""
    job = planned.job
    spec, elastic = get_mapping(job, "spec"), get_mapping(job, "spec", "elasticPolicy")
    roles, said = get_mapping(spec, _REPLICA_SPECS), get_mapping(spec, "runPolicy")
    changed: dict[str, JsonValue] = {
        _REPLICA_SPECS: {
            role: {
                **get_mapping(roles, role),
                "restartPolicy": "Never",
                "template": change_template(get_mapping(roles, role, "template")),
            }
            for role in roles
        },
        "runPolicy": {
            # With backoffLimit, the operator deletes all pods when the limit is exceeded, and ignores
            # cleanPodPolicy.
            **{key: value for key, value in said.items() if key != "backoffLimit"},
            "cleanPodPolicy": "None",  # The logs of the pods are read afterwards.
            "ttlSecondsAfterFinished": limits.kept_seconds,
            "activeDeadlineSeconds": limits.active_seconds,
        },
        **({"elasticPolicy": {**elastic, "maxRestarts": 0}} if elastic else {}),
    }
    return JobManifests(job={**job, "spec": {**spec, **changed}})


def read_group_policy(job: Manifest) -> Manifest:
    """Return the scheduling policy of a job."""
    return get_mapping(job, "spec", "runPolicy", "schedulingPolicy")
