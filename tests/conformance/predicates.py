"""Predicates on one differing field; the table in `differences` combines them."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from comparing import MISSING, Found, quantity
from dice import Json

from kfpytorch_common.quantity import parse

Predicate = Callable[[Found], bool]


def added(found: Found) -> bool:
    """True if the Go plugin has no value there."""
    return bool(found.theirs == MISSING)


def left_out(found: Found) -> bool:
    """True if our job has no value there."""
    return bool(found.ours == MISSING)


def becomes(theirs: Any, ours: Any) -> Predicate:
    """Return a predicate for this pair of values."""
    return lambda found: bool(found.theirs == theirs and found.ours == ours)


def adds(ours: Any) -> Predicate:
    """Return a predicate for exactly this value where the Go plugin has none."""
    return becomes(MISSING, ours)


def adds_text(pattern: str) -> Predicate:
    """Return a predicate for a text of this pattern where the Go plugin has no value."""
    return lambda found: added(found) and re.fullmatch(pattern, str(found.ours)) is not None


def both(*predicates: Predicate) -> Predicate:
    """Return a predicate that requires all given predicates."""
    return lambda found: all(predicate(found) for predicate in predicates)


def any_value(found: Found) -> bool:
    """True if both sides have a value."""
    return found.theirs != MISSING and found.ours != MISSING


def is_output_prefix(found: Found) -> bool:
    """True if we add the output prefix of the attempt."""
    return added(found) and bool(found.ours == found.case["output_prefix"])


def is_task(found: Found) -> bool:
    """True if we add the annotation that names the Flyte node and the attempt."""
    return added(found) and "execution" in json.loads(found.ours)


def is_job_name(found: Found) -> bool:
    """True if we add our job's name."""
    return added(found) and bool(found.ours == found.job["metadata"]["name"])


def is_nproc(found: Found) -> bool:
    """True if we add the author's nproc_per_node as text."""
    custom = found.case["template"]["custom"]
    value = either(either(custom, "elasticConfig"), "nprocPerNode")
    return added(found) and bool(found.ours == str(int(value)))


def either(mapping: Json, key: str) -> Any:
    """Return the value of a key, or of the same key in snake case."""
    return mapping.get(key) or mapping.get(re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)) or {}


def is_port_name(found: Found) -> bool:
    """True if we add a port name made from the port number, or the operator's default name."""
    number = found.path.rpartition(".ports[")[2].partition("]")[0]
    return added(found) and bool(found.ours in (f"port-{number}", "pytorchjob-port"))


def lower_cased(found: Found) -> bool:
    """True if the path ends with a key of a setting that the Go loader writes in lower case."""
    maps = [section for section in found.case["settings"].values() if isinstance(section, Mapping)]
    keys = {key for section in maps for key in section if key != key.lower()}
    name = found.path.rpartition("[")[2].rpartition(".")[2].rstrip("]")
    return name in {*keys, *(key.lower() for key in keys)} and (added(found) or left_out(found))


def as_many_as_processors(found: Found) -> bool:
    """True if we add OMP_NUM_THREADS with the container's CPU limit, rounded down to at least one."""
    role = "Master" if ".Master." in found.path else "Worker"
    spec = found.job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
    (trainer,) = (each for each in spec["containers"] if each["name"] == "pytorch")
    limit = parse(trainer["resources"]["limits"]["cpu"]).whole
    return adds({"name": "OMP_NUM_THREADS", "value": str(max(1, limit))})(found)


def setting(name: str) -> Predicate:
    """Return a predicate for platforms that set this key."""
    return lambda found: name in found.case["settings"]


def on_sidecar(found: Found) -> bool:
    """True for a container that is neither the primary container nor an init container."""
    return ".containers[" in found.path and ".containers[pytorch]" not in found.path


def build_pod_predicate(part: str) -> Predicate:
    """Return a predicate for an entry that our pods have and our job repeats."""

    def has(found: Found) -> bool:
        groups = found.job["spec"]["pytorchReplicaSpecs"].values()
        key = found.path.removeprefix(f"metadata.{part}").strip(".[]")
        return any(group["template"]["metadata"].get(part, {}).get(key) == found.ours for group in groups)

    return has


def resource_of(found: Found) -> tuple[str, str]:
    """Return ``limits`` or ``requests``, and the name of the resource."""
    part, _, name = found.path.rpartition(".resources.")[2].replace("[", ".").partition(".")
    return part, name.rstrip("]")


def defaulted(found: Found) -> bool:
    """True for a Go value of zero where we set the default of the settings, at most the platform's limit."""
    settings, name = found.case["settings"], resource_of(found)[1]
    setting, value = {"cpu": ("default-cpus", "1"), "memory": ("default-memory", "1Gi")}.get(name, ("", ""))
    most = settings.get("kfpytorch", {}).get("task-resources", {}).get("limits", {}).get(name)
    return found.theirs == "0" and found.ours in (quantity(settings.get(setting, value)), quantity(most))


def role(found: Found) -> Json:
    """Return the resources of the replica role in the path, for either form of the config."""
    name = "masterReplicas" if ".Master." in found.path else "workerReplicas"
    spec = either(found.case["template"].get("custom", {}), name)
    spec = spec.get("common", spec) if isinstance(spec, Mapping) else {}
    resources: Json = spec.get("resources", {})
    return resources


def with_role(found: Found) -> bool:
    """True if the role specifies resources."""
    return bool(role(found))


def role_asks_for_less(found: Found) -> bool:
    """True if the role requests only other resources. We keep the request of the task."""
    names = {
        "cpu": {"CPU", 1},
        "memory": {"MEMORY", 3},
        "ephemeral-storage": {"EPHEMERAL_STORAGE", 5},
        "nvidia.com/gpu": {"GPU", 2},
    }
    entries = [each for entries in role(found).values() for each in entries]
    nonzero = {each["name"] for each in entries if quantity(each["value"]) != "0"}
    return bool(role(found)) and not nonzero & names.get(resource_of(found)[1], set())


def unset(found: Found) -> bool:
    """True if the Go plugin has no value or zero."""
    return found.theirs in (MISSING, "0")


def zero(found: Found) -> bool:
    """True if the Go plugin has only zeros."""
    amounts = found.theirs.values() if isinstance(found.theirs, dict) else [found.theirs]
    return set(amounts) == {"0"}


def is_device(found: Found) -> bool:
    return "/" in resource_of(found)[1]


def renamed_gpu(found: Found) -> bool:
    """True if the platform uses another resource name for GPUs."""
    return found.case["settings"].get("gpu-resource-name", "nvidia.com/gpu") != "nvidia.com/gpu"


def short_gpu(found: Found) -> bool:
    """True if a pod uses `gpu` as the resource name, which the Go plugin replaces only in the task."""
    pods = [found.case["template"].get("k8sPod"), found.case["pod_templates"]]
    return '"gpu": ' in json.dumps(pods)


def about_gpus(found: Found) -> bool:
    """True if one side mentions a GPU or contains a toleration that the settings define for GPUs."""
    tolerations = found.case["settings"].get("resource-tolerations", {})
    by_name = {
        name: items
        for part in (tolerations if isinstance(tolerations, list) else [tolerations])
        for name, items in part.items()
    }
    tolerated = [each for name, items in by_name.items() if "gpu" in name for each in items]
    words = ["gpu", "accelerator", *(json.dumps(each, sort_keys=True) for each in tolerated)]
    return any(word in f"{found.path} {found.theirs} {found.ours}" for word in words)


def problem(text: str) -> Predicate:
    """Return a predicate for tasks that we reject with a problem that contains this text."""
    return lambda found: any(text in f"{each['field']} {each['message']}" for each in found.ours)


def without_primary(found: Found) -> bool:
    """True if the only container of the pod is not named as the primary container."""
    pod = found.case["template"].get("k8sPod", {}).get("podSpec", {})
    missing = "config missing [primary_container_name]", "] not defined"
    return len(pod.get("containers", [])) == 1 and any(text in found.theirs for text in missing)


def joined_terms(found: Found) -> bool:
    """True if we add the platform's interruptible requirement to each of our selector terms."""
    requirement = "interruptible-node-selector-requirement"
    settings = found.case["settings"]
    known = [settings[name] for name in (requirement, f"non-{requirement}") if name in settings]
    ours = [term.get("matchExpressions", []) for term in found.ours] if any_value(found) else []
    return bool(ours) and any(all(each in term for term in ours) for each in known)


def primary_template(found: Found) -> bool:
    """True for a sidecar if a PodTemplate has a template for the primary container."""
    specs = [each["template"]["spec"] for each in found.case["pod_templates"]]
    names = {each["name"] for spec in specs for each in spec.get("containers", [])}
    return on_sidecar(found) and "primary" in names


def native_sidecar(found: Found) -> bool:
    """True for a role that requests resources if an init container runs during the training."""
    pod = found.case["template"].get("k8sPod") or {}
    init = pod.get("podSpec", {}).get("initContainers", [])
    return bool(role(found)) and any(each.get("restartPolicy") for each in init)
