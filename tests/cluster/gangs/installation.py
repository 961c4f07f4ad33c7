"""Objects by which our server detects a gang scheduler, if the settings have `auto`.

They belong to an installation in a cluster; the tests run the programs outside of it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rig import operator, policies, scheduling, yunikorn
from rig.api import build_manifest
from rig.control_plane import ControlPlane
from rig.process import wait_for

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
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return [build_manifest("apps/v1", "Deployment", operator.MODULE, operator.NAMESPACE, spec=spec)]


def yunikorns_webhook(namespace: str) -> Sequence[dict[str, Any]]:
    """Return a policy that sets the scheduler of pods that name none, as YuniKorn's webhook does."""
    patch = f'op: "replace", path: "/spec/schedulerName", value: "{yunikorn.NAME}"'
    condition = f"object.spec.schedulerName == '{_SILENT}'"
    return policies.alter("scheduler-of-all", namespace, ("", "pods"), patch, condition)


@contextlib.contextmanager
def with_installation(
    plane: ControlPlane, objects: Sequence[dict[str, Any]], namespace: str
) -> Iterator[None]:
    """Create the objects and wait until policies are in force. Delete the objects on exit."""
    with plane.admin.having(*objects):
        wanted = (
            yunikorn.NAME if any(each["kind"] == "MutatingAdmissionPolicy" for each in objects) else _SILENT
        )
        spec = {"containers": [{"name": "silent", "image": "image:1"}]}
        pod = build_manifest("v1", "Pod", "silent", namespace, spec=spec)

        wait_for(
            lambda: plane.admin.try_create(pod).json()["spec"]["schedulerName"], lambda name: name == wanted
        )
        yield
