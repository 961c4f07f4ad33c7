"""Objects by which our server detects a gang scheduler, if the settings have `auto`.

They belong to an installation in a cluster; the tests run the programs outside of it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rig import operator, scheduling, yunikorn
from rig.api import path_of, pods
from rig.control_plane import ControlPlane
from rig.process import wait_until

_VERSION: Final = "admissionregistration.k8s.io/v1beta1"
_CALLED: Final = "scheduler-of-all"
_SILENT: Final = "default-scheduler"
OURS: Final[Mapping[str, tuple[str, str]]] = {
    "coscheduling-backend": ("our PodGroup", scheduling.COSCHEDULING),
    "coscheduling-operator": ("the operator's PodGroup", scheduling.COSCHEDULING),
    "yunikorn": ("task groups", yunikorn.NAME),
    "kueue": ("Workload", _SILENT),
    "coscheduling-backend-kueue": ("our PodGroup, Workload", scheduling.COSCHEDULING),
}
"""The object that makes a job a gang on each platform, and the scheduler of its pods."""


def deployment(*flags: str) -> Sequence[dict[str, Any]]:
    """Return a Deployment with these flags of the operator, which is really a process of this machine."""
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
    """Return a policy that sets the scheduler of pods that name none, as YuniKorn's webhook does."""
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
        {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": _CALLED}, "spec": kind_spec}
        for kind, kind_spec in kinds.items()
    ]


@contextlib.contextmanager
def with_installation(
    plane: ControlPlane, objects: Sequence[dict[str, Any]], namespace: str
) -> Iterator[None]:
    """Create the objects and wait until policies are in force. Delete the objects on exit."""
    with contextlib.ExitStack() as undo:
        for manifest in objects:
            plane.admin.apply(manifest)
            undo.callback(plane.admin.delete, f"{path_of(manifest)}/{manifest['metadata']['name']}")
        wanted = yunikorn.NAME if any(each["apiVersion"] == _VERSION for each in objects) else _SILENT
        wait_until(lambda: _admitted(plane, namespace) == wanted, 60, lambda: "the policy is not heeded")
        yield


def _admitted(plane: ControlPlane, namespace: str) -> str:
    """Return the scheduler of a pod that does not name one."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "silent"},
        "spec": {"containers": [{"name": "silent", "image": "image:1"}]},
    }
    answer = plane.admin.request("POST", pods(namespace), pod, params={"dryRun": "All"})
    return str(answer.json()["spec"]["schedulerName"])
