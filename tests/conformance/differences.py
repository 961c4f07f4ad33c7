"""Each field in which our job differs from the job of Flyte's Go plugin: a path and a predicate.

docs/reference/differences-from-the-go-plugin.md contains the same entries, with the reason and the number
of generated tasks. The first entry that matches explains a difference.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from comparing import Found
from predicates import (
    Predicate,
    about_gpus,
    adds,
    adds_text,
    as_many_as_processors,
    becomes,
    both,
    build_pod_predicate,
    defaulted,
    is_device,
    is_job_name,
    is_nproc,
    is_output_prefix,
    is_port_name,
    is_task,
    joined_terms,
    left_out,
    lower_cased,
    native_sidecar,
    on_sidecar,
    primary_template,
    problem,
    renamed_gpu,
    role_asks_for_less,
    setting,
    short_gpu,
    unset,
    with_role,
    without_primary,
    zero,
)


@dataclass(frozen=True)
class Difference:
    """A field that differs intentionally."""

    path: str
    """Pattern of the path: `*` matches anything; brackets contain names."""
    applies: Predicate
    """The condition beyond the path."""

    def explains(self, found: Found) -> bool:
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
    "output-prefix": ("metadata.annotations[kfpytorch.flyte.org/output-prefix]", is_output_prefix),
    "task": ("metadata.annotations[kfpytorch.flyte.org/task]", is_task),
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
    "rendezvous-id": ("spec.elasticPolicy.rdzvId", is_job_name),
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
    "device-pairs": (f"{POD}.*ontainers[*].resources.*[*/*]", both(unset, is_device)),
    "sidecar-limits": (f"{POD}.containers[*].resources.limits*", both(left_out, on_sidecar, zero)),
}
PLACEMENT = {
    "gpu-name-tolerations": (f"{POD}.tolerations*", both(renamed_gpu, about_gpus)),
    "gpu-name-affinity": (f"{POD}.affinity*", both(renamed_gpu, about_gpus)),
    "replica-resources-affinity": (f"{POD}.affinity*", both(with_role, about_gpus)),
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


def explanation(found: Found) -> str | None:
    """Return the name of the entry that explains a difference, or None."""
    return next((name for name, entry in DIFFERENCES.items() if entry.explains(found)), None)
