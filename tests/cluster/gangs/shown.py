"""What a cluster shows to whoever looks for its gang scheduler, where the settings say ``auto``.

Lives here: what an installation would have beside the programs that run here. Does not: the programs.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rig import operator, scheduling, yunikorn
from rig.api import path_of, pods
from rig.control_plane import ControlPlane
from rig.process import until

_VERSION: Final = "admissionregistration.k8s.io/v1beta1"
_CALLED: Final = "scheduler-of-all"
_SILENT: Final = "default-scheduler"
OURS: Final[Mapping[str, tuple[str, str]]] = {
    "coscheduling-plugin": ("our PodGroup", scheduling.COSCHEDULING),
    "coscheduling-operator": ("the operator's PodGroup", scheduling.COSCHEDULING),
    "yunikorn": ("task groups", yunikorn.NAME),
    "kueue": ("Workload", _SILENT),
    "coscheduling-plugin-kueue": ("our PodGroup, Workload", scheduling.COSCHEDULING),
}
"""What makes a gang of a job on each platform, and who places its pods."""


def deployment(*flags: str) -> Sequence[dict[str, Any]]:
    """The Deployment of the operator with its flags; the one that works is a process of this machine."""
    labels = {"control-plane": "kubeflow-training-operator"}
    container = {"name": operator.MODULE, "image": "image:1", "command": ["/manager"], "args": list(flags)}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    metadata = {"name": operator.MODULE, "namespace": operator.NAMESPACE}
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}]


def yunikorns_webhook(namespace: str) -> Sequence[dict[str, Any]]:
    """Gives YuniKorn every pod that names no scheduler, as its admission controller does."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    patch = f'[JSONPatch{{op: "replace", path: "/spec/schedulerName", value: "{yunikorn.NAME}"}}]'
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
        "matchConditions": [{"name": "silent", "expression": f"object.spec.schedulerName == '{_SILENT}'"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    kinds = {"MutatingAdmissionPolicy": spec, "MutatingAdmissionPolicyBinding": {"policyName": _CALLED}}
    return [
        {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": _CALLED}, "spec": said}
        for kind, said in kinds.items()
    ]


@contextlib.contextmanager
def shown(plane: ControlPlane, objects: Sequence[dict[str, Any]], namespace: str) -> Iterator[None]:
    """While they are there; policies count from some moment on."""
    with contextlib.ExitStack() as undo:
        for manifest in objects:
            plane.admin.apply(manifest)
            undo.callback(plane.admin.delete, f"{path_of(manifest)}/{manifest['metadata']['name']}")
        wanted = yunikorn.NAME if any(each["apiVersion"] == _VERSION for each in objects) else _SILENT
        until(lambda: _admitted(plane, namespace) == wanted, 30, lambda: "the policy is not heeded")
        yield


def _admitted(plane: ControlPlane, namespace: str) -> str:
    """The scheduler of a pod that names none."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "silent"},
        "spec": {"containers": [{"name": "silent", "image": "image:1"}]},
    }
    answer = plane.admin.ask("POST", pods(namespace), pod, params={"dryRun": "All"})
    return str(answer.json()["spec"]["schedulerName"])
