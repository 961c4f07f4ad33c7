"""Conversion of worlds and observations to the same fields in the same form, for comparison."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stored_world import NAMESPACE, World, is_terminating

Manifest = Mapping[str, Any]


_CONDITION = ("type", "status", "reason", "message")
_COUNTS = ("active", "succeeded", "failed")
_TIMES = ("startTime", "completionTime")
_OF_POD = ("name", "incarnation", "phase", "terminating", "labels", "annotations", "owners", "restartPolicy")
_OF_POD_TOO = ("schedulerName", "env", "ports", "initContainers")
_CAUSE = re.compile(r"((?:spec|metadata)[\w.\[\]]*): (\w+) value")


def like(worlds: Sequence[World], observed: Manifest) -> list[World]:
    """Return the worlds that are equal to the observation.

    If the operator loops without end, the parts of an observation are from different moments. Each part may
    then match another world, and any of these worlds may follow.
    """
    expected = recorded(observed)
    found = [played(world) for world in worlds]
    stormy = [each for world, each in zip(worlds, found, strict=True) if world.is_stormy]
    if not stormy:
        return [world for world, each in zip(worlds, found, strict=True) if each == expected]
    for each in (expected, *stormy):
        each["pods"] = [{**pod, "incarnation": 0, "terminating": False} for pod in each["pods"]]
    is_like = all(any(each[part] == expected[part] for each in stormy) for part in expected)
    return [world for world in worlds if world.is_stormy] if is_like else []


def recorded(observed: Manifest) -> dict[str, Any]:
    """Return the observed state, without parts that vary randomly."""
    job = observed["job"]
    return {
        "job": job and {"spec": job["spec"], "status": _recorded_status(job["status"])},
        "last": None if job or "last_status" not in observed else _recorded_status(observed["last_status"]),
        "pods": [{key: pod[key] for key in (*_OF_POD, *_OF_POD_TOO)} for pod in observed["pods"]],
        "services": [_sorted(service) for service in observed["services"]],
        "refused": [_refusal(each) for each in observed.get("refused", ())],
        "missing": observed.get("missing", []),
    }


def played(world: World) -> dict[str, Any]:
    """Return the state of a world, in the form of `recorded`."""
    job = world.job
    return {
        "job": job and {"spec": job["spec"], "status": status_of(job.get("status", {}), world)},
        "last": None if job or world.last_status is None else status_of(world.last_status, world),
        "pods": [pod_of(pod, world) for _, pod in sorted(world.pods.items())],
        "services": [service_of(service, world) for _, service in sorted(world.services.items())],
        "refused": [_refusal(each) for each in world.refused],
        "missing": list(world.missing),
    }


def _refusal(response: Manifest) -> Manifest:
    """Return the code, the reason, and the fields with the kinds of their errors, without the sentences."""
    causes = sorted({" ".join(cause) for cause in _CAUSE.findall(response["message"])})
    return {**response, "message": causes or response["message"]}


def _recorded_status(status: Manifest) -> Manifest:
    return {
        "conditions": [{key: each[key] for key in _CONDITION} for each in status["conditions"]],
        "replicas": _counts(status),
        **{name: status[name] for name in _TIMES},
    }


def status_of(status: Manifest, world: World, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return the compared fields. An index among the times of the same kind replaces each time."""
    return {
        "conditions": [_condition(each, namespace) for each in status.get("conditions") or ()],
        "replicas": _counts(status),
        **{name: 1 + world.times[name].index(status[name]) if status.get(name) else None for name in _TIMES},
    }


def _condition(condition: Manifest, namespace: str) -> Manifest:
    message = condition["message"].replace(f"{namespace}/", "NS/")
    return {**{key: condition[key] for key in _CONDITION}, "message": message}


def _counts(status: Manifest) -> Manifest:
    replicas = status.get("replicaStatuses") or {}
    return {role: {key: each[key] for key in _COUNTS if key in each} for role, each in replicas.items()}


def pod_of(pod: Manifest, world: World) -> Manifest:
    """Return the compared fields of a pod."""
    metadata, spec = pod["metadata"], pod["spec"]
    return {
        "name": metadata["name"],
        "incarnation": world.incarnations[metadata["name"]],
        "phase": pod["status"]["phase"],
        "terminating": is_terminating(pod),
        "labels": metadata.get("labels", {}),
        "annotations": metadata.get("annotations", {}),
        "owners": _owners(metadata, world),
        "restartPolicy": spec["restartPolicy"],
        "schedulerName": spec["schedulerName"],
        "env": {each["name"]: _appended(each) for each in spec["containers"]},
        "ports": {each["name"]: _ports(each) for each in spec["containers"]},
        "initContainers": [_init_container(each) for each in spec.get("initContainers", ())],
    }


def _appended(container: Manifest) -> list[list[str]]:
    """Return the operator's environment variables, which start with PYTHONUNBUFFERED."""
    variables = [[each["name"], each.get("value", "")] for each in container.get("env", ())]
    begins = [index for index, (name, _) in enumerate(variables) if name == "PYTHONUNBUFFERED"]
    return variables[begins[-1] :] if begins else []


def _init_container(container: Manifest) -> Manifest:
    fields = ("name", "image", "imagePullPolicy", "command", "resources")
    return {**{key: container.get(key) for key in fields}, "env": container.get("env", [])}


def _ports(container: Manifest) -> list[list[Any]]:
    return [[each.get("name"), each["containerPort"]] for each in container.get("ports", ())]


def service_of(service: Manifest, world: World) -> Manifest:
    """Return the compared fields of a service."""
    metadata, spec = service["metadata"], service["spec"]
    return _sorted(
        {
            "name": metadata["name"],
            "labels": metadata["labels"],
            "selector": spec["selector"],
            "clusterIP": spec["clusterIP"],
            "owners": _owners(metadata, world),
            "publishNotReadyAddresses": spec.get("publishNotReadyAddresses", False),
            "ports": spec["ports"],
        }
    )


def _sorted(service: Manifest) -> Manifest:
    """Sort the ports, which the operator writes in random order."""
    return {**service, "ports": sorted(service["ports"], key=lambda port: port["port"])}


def _owners(metadata: Manifest, world: World) -> list[Manifest]:
    fields = ("kind", "name", "controller", "blockOwnerDeletion")
    return [
        {**{key: owner[key] for key in fields}, "current": owner["uid"] == world.uid}
        for owner in metadata.get("ownerReferences", ())
    ]
