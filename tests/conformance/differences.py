"""Each field in which our job differs from the job of Flyte's Go plugin: a path and a predicate.

docs/reference/differences-from-the-go-plugin.md contains the same entries, with the reason and the number
of generated tasks. The first entry that matches explains a difference.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from comparing import MISSING, Found, quantity

from kfpytorch_common.quantity import parse


def added(found):
    return bool(found.theirs == MISSING)


def left_out(found):
    return bool(found.ours == MISSING)


def becomes(theirs, ours):
    return lambda found: bool(found.theirs == theirs and found.ours == ours)


def adds(ours):
    return becomes(MISSING, ours)


def adds_text(pattern):
    """Return a predicate for a text of this pattern where the Go plugin has no value."""
    return lambda found: added(found) and re.fullmatch(pattern, str(found.ours)) is not None


def both(*predicates):
    return lambda found: all(predicate(found) for predicate in predicates)


def is_nproc(found):
    """True if we add the author's nproc_per_node as text."""
    custom = found.case["template"]["custom"]
    value = either(either(custom, "elasticConfig"), "nprocPerNode")
    return added(found) and bool(found.ours == str(int(value)))


def either(mapping, key):
    """Return the value of a key, or of the same key in snake case."""
    return mapping.get(key) or mapping.get(re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)) or {}


def is_port_name(found):
    """True if we add a port name made from the port number, or the operator's default name."""
    number = found.path.rpartition(".ports[")[2].partition("]")[0]
    return added(found) and bool(found.ours in (f"port-{number}", "pytorchjob-port"))


def lower_cased(found):
    """True if the path ends with a key of a setting that the Go loader writes in lower case."""
    maps = [section for section in found.case["settings"].values() if isinstance(section, Mapping)]
    keys = {key for section in maps for key in section if key != key.lower()}
    name = found.path.rpartition("[")[2].rpartition(".")[2].rstrip("]")
    return name in {*keys, *(key.lower() for key in keys)} and (added(found) or left_out(found))


def as_many_as_processors(found):
    """True if we add OMP_NUM_THREADS with the container's CPU limit, rounded down to at least one."""
    role = "Master" if ".Master." in found.path else "Worker"
    spec = found.job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
    (trainer,) = (each for each in spec["containers"] if each["name"] == "pytorch")
    limit = parse(trainer["resources"]["limits"]["cpu"]).whole
    return adds({"name": "OMP_NUM_THREADS", "value": str(max(1, limit))})(found)


def setting(name):
    return lambda found: name in found.case["settings"]


def on_sidecar(found):
    """True for a container that is neither the primary container nor an init container."""
    return ".containers[" in found.path and ".containers[pytorch]" not in found.path


def build_pod_predicate(part):
    """Return a predicate for an entry that our pods have and our job repeats."""

    def has(found):
        groups = found.job["spec"]["pytorchReplicaSpecs"].values()
        key = found.path.removeprefix(f"metadata.{part}").strip(".[]")
        return any(group["template"]["metadata"].get(part, {}).get(key) == found.ours for group in groups)

    return has


def resource_of(found):
    """Return ``limits`` or ``requests``, and the name of the resource."""
    part, _, name = found.path.rpartition(".resources.")[2].replace("[", ".").partition(".")
    return part, name.rstrip("]")


def defaulted(found):
    """True for a Go value of zero where we set the default of the settings, at most the platform's limit."""
    settings, name = found.case["settings"], resource_of(found)[1]
    setting, value = {"cpu": ("default-cpus", "1"), "memory": ("default-memory", "1Gi")}.get(name, ("", ""))
    most = settings.get("kfpytorch", {}).get("task-resources", {}).get("limits", {}).get(name)
    return found.theirs == "0" and found.ours in (quantity(settings.get(setting, value)), quantity(most))


def role(found):
    """Return the resources of the replica role in the path, for either form of the config."""
    name = "masterReplicas" if ".Master." in found.path else "workerReplicas"
    spec = either(found.case["template"].get("custom", {}), name)
    spec = spec.get("common", spec) if isinstance(spec, Mapping) else {}
    return spec.get("resources", {})


def role_asks_for_less(found):
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


def zero(found):
    amounts = found.theirs.values() if isinstance(found.theirs, dict) else [found.theirs]
    return set(amounts) == {"0"}


def renamed_gpu(found):
    """True if the platform uses another resource name for GPUs."""
    return found.case["settings"].get("gpu-resource-name", "nvidia.com/gpu") != "nvidia.com/gpu"


def short_gpu(found):
    """True if a pod uses `gpu` as the resource name, which the Go plugin replaces only in the task."""
    pods = [found.case["template"].get("k8sPod"), found.case["pod_templates"]]
    return '"gpu": ' in json.dumps(pods)


def about_gpus(found):
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


def problem(text):
    """Return a predicate for tasks that we reject with a problem that contains this text."""
    return lambda found: any(text in f"{each['field']} {each['message']}" for each in found.ours)


def without_primary(found):
    """True if the only container of the pod is not named as the primary container."""
    pod = found.case["template"].get("k8sPod", {}).get("podSpec", {})
    missing = "config missing [primary_container_name]", "] not defined"
    return len(pod.get("containers", [])) == 1 and any(text in found.theirs for text in missing)


def joined_terms(found):
    """True if we add the platform's interruptible requirement to each of our selector terms."""
    requirement = "interruptible-node-selector-requirement"
    settings = found.case["settings"]
    known = [settings[name] for name in (requirement, f"non-{requirement}") if name in settings]
    if MISSING in (found.theirs, found.ours):
        return False
    ours = [term.get("matchExpressions", []) for term in found.ours]
    return any(all(each in term for term in ours) for each in known)


def primary_template(found):
    """True for a sidecar if a PodTemplate has a template for the primary container."""
    specs = [each["template"]["spec"] for each in found.case["pod_templates"]]
    names = {each["name"] for spec in specs for each in spec.get("containers", [])}
    return on_sidecar(found) and "primary" in names


def native_sidecar(found):
    """True for a role that requests resources if an init container runs during the training."""
    pod = found.case["template"].get("k8sPod") or {}
    init = pod.get("podSpec", {}).get("initContainers", [])
    return bool(role(found)) and any(each.get("restartPolicy") for each in init)


@dataclass(frozen=True)
class Difference:
    path: str  # Pattern of the path: `*` matches anything; brackets contain names.
    applies: Callable[[Found], bool]  # The condition beyond the path.

    def explains(self, found):
        return fnmatchcase(found.path, self.path.replace("[", "[[]")) and self.applies(found)


NAME = re.compile("[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
FAIL_ON_ERROR = {"name": "FLYTE_FAIL_ON_ERROR", "value": "true"}
WORKER = {"name": "_F_WN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
EARLIEST = {"name": "_F_DES", "value": "Earliest"}
NCCL_DEBUG = {"name": "NCCL_DEBUG", "value": "WARN"}
ROLE = "spec.pytorchReplicaSpecs.*"
POD = f"{ROLE}.template.spec"
JOB = {
    "name": ("metadata.name", lambda found: NAME.fullmatch(found.ours) is not None),
    "identity": ("*metadata.labels[kfpytorch.flyte.org/job]", adds_text("[0-9a-f]{40}")),
    "managed-by": ("metadata.labels[app.kubernetes.io/*]", adds_text("flyte|flytekitplugins-kfpytorch")),
    "output-prefix": (
        "metadata.annotations[kfpytorch.flyte.org/output-prefix]",
        lambda found: added(found) and found.ours == found.case["output_prefix"],
    ),
    "task": (
        "metadata.annotations[kfpytorch.flyte.org/task]",
        lambda found: added(found) and "execution" in json.loads(found.ours),
    ),
    "owner": ("metadata.ownerReferences", left_out),
    "finalizer": ("metadata.finalizers", both(left_out, setting("inject-finalizer"))),
    "labels-of-pods": ("metadata.labels*", build_pod_predicate("labels")),
    "annotations-of-pods": ("metadata.annotations*", build_pod_predicate("annotations")),
    "clean-pod-policy": ("spec.runPolicy", adds({"cleanPodPolicy": "None"})),
    "elastic-clean-pod-policy": ("spec.runPolicy.cleanPodPolicy", lambda found: found.ours == "None"),
    "kept-clean-pod-policy": (
        "metadata.annotations[kfpytorch.flyte.org/clean-pod-policy]",
        adds_text("All|Running"),
    ),
    "nproc-per-node": ("spec.nprocPerNode", is_nproc),
    "deprecated-nproc-per-node": ("spec.elasticPolicy.nProcPerNode", left_out),
    "rendezvous-id": (
        "spec.elasticPolicy.rdzvId",
        lambda found: added(found) and found.ours == found.job["metadata"]["name"],
    ),
    "rendezvous-backend": ("spec.elasticPolicy.rdzvBackend", adds("c10d")),
    "restart-always": (f"{ROLE}.restartPolicy", becomes("Always", "OnFailure")),
    "port-names": (f"{POD}.containers[pytorch].ports[*].name", is_port_name),
    "repeated-pull-secret": (f"{POD}.imagePullSecrets[*]#", left_out),
    "restart-policy-of-pods": (f"{POD}.restartPolicy", left_out),
}
ENVIRONMENT = {
    "fail-on-error": (f"{POD}.containers[pytorch].env[FLYTE_FAIL_ON_ERROR]", adds(FAIL_ON_ERROR)),
    "worker-name": (f"{POD}.containers[pytorch].env[_F_WN]", adds(WORKER)),
    "worker-name-of-sidecars": (f"{POD}.containers[*].env[_F_WN]", both(left_out, on_sidecar)),
    "error-strategy": (f"{POD}.containers[pytorch].env[_F_DES]", adds(EARLIEST)),
    "error-strategy-of-sidecars": (f"{POD}.containers[*].env[_F_DES]", both(left_out, on_sidecar)),
    "setting-case": (f"{POD}.*ontainers[*].env[*]", lower_cased),
    "nccl-debug": (f"{POD}.containers[pytorch].env[NCCL_DEBUG]", adds(NCCL_DEBUG)),
    "threads": (f"{POD}.containers[pytorch].env[OMP_NUM_THREADS]", as_many_as_processors),
    "workflow-name": (f"{POD}.*ontainers[*].env[FLYTE_INTERNAL_EXECUTION_WORKFLOW]", left_out),
    "repeated-env": (f"{POD}.*ontainers[*].env[*]#", left_out),
}
RESOURCES = {
    "platform-defaults": (f"{POD}.*ontainers[*].resources.*", defaulted),
    "native-sidecar": (f"{POD}.initContainers[*].resources*", native_sidecar),
    "replica-resources": (f"{POD}.*ontainers[*].resources.*", role_asks_for_less),
    "gpu-name": (f"{POD}.*ontainers[*].resources.*gpu*", renamed_gpu),
    "gpu-key": (f"{POD}.*ontainers[*].resources.*.gpu", left_out),
    "gpu-key-beside-name": (f"{POD}.*ontainers[*].resources.*[nvidia.com/gpu]", short_gpu),
    "inherited-sidecar": (f"{POD}.containers[*].resources*", primary_template),
    "device-pairs": (
        f"{POD}.*ontainers[*].resources.*[*/*]",
        lambda found: found.theirs in (MISSING, "0") and "/" in resource_of(found)[1],
    ),
    "sidecar-limits": (f"{POD}.containers[*].resources.limits*", both(left_out, on_sidecar, zero)),
}
PLACEMENT = {
    "gpu-name-tolerations": (f"{POD}.tolerations*", both(renamed_gpu, about_gpus)),
    "gpu-name-affinity": (f"{POD}.affinity*", both(renamed_gpu, about_gpus)),
    "replica-resources-affinity": (f"{POD}.affinity*", both(lambda found: bool(role(found)), about_gpus)),
    "required-nodes": (f"{POD}.affinity.nodeAffinity.*.nodeSelectorTerms", joined_terms),
}
REFUSED = {
    name: ("refused by us", problem(text))
    for name, text in {
        "gpus-for-processes": "is more than the",
        "no-processes": "starts no process",
        "no-fewer-gpus": "is more than this platform allows",
        "device-counts": "for devices, both must be equal",
        "other-type": "is not a task type of this backend",
        "many-masters": "a job has exactly one master",
        "extension": "custom.kfpytorch",
        "other-version": "would lose the workers",
        "no-replicas": "contains no replicas",
        "empty-elastic": "has no number of nodes",
        "elastic-range": "Replicas is less than",
        "elastic-replicas": "is not between minReplicas and maxReplicas",
        "negative": "is negative",
        "lost-resources": "is not a resource that a container can request",
        "other-word": "is not one of its values",
        "unfilled-args": "was not replaced by Flyte",
        "many-workers": "is too large for pod names",
        "volume-twice": "is the name of two volumes",
        "mount-twice": "is the mount path of two volumes",
        "port-twice": "of two ports",
        "operators-port": "is the port with which replicas find each other",
        "container-twice": "is the name of two containers",
        "impossible-quantities": "is not a quantity",
        "no-image": "image is empty",
        "duplicate-key": "is set twice, in camel and in snake case",
        "copilot": "requires Flyte's co-pilot",
    }.items()
}
ACCEPTED = {"only-container": ("refused by them", without_primary)}
DIFFERENCES: dict[str, Difference] = {
    name: Difference(*entry)
    for part in (JOB, ENVIRONMENT, RESOURCES, PLACEMENT, REFUSED, ACCEPTED)
    for name, entry in part.items()
}


def explanation(found):
    return next((name for name, entry in DIFFERENCES.items() if entry.explains(found)), None)
