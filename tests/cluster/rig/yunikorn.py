"""YuniKorn, with the queues of a test; it schedules the pods that name it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rig.api import pods
from rig.control_plane import ControlPlane
from rig.process import Process

NAME: Final = "yunikorn"
_NAMESPACE: Final = "yunikorn"
_PROBE: Final = "probe"
# A tenth of the default, to shorten the tests.
_SERVICE: Final = {"service.schedulingInterval": "100ms"}
QUEUE: Final = "yunikorn.apache.org/queue"
APPLICATION: Final = "yunikorn.apache.org/app-id"
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"


def start(plane: ControlPlane, queues: Sequence[Mapping[str, Any]], probed: str) -> Process:
    """Start YuniKorn with these queues under the root. Return when it schedules a pod of queue `probed`."""
    plane.namespace(_NAMESPACE)
    partition = {
        "name": "default",
        "placementrules": [{"name": "provided", "create": False}],
        "queues": [{"name": "root", "submitacl": "*", "queues": list(queues)}],
    }
    plane.admin.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "yunikorn-configs", "namespace": _NAMESPACE},
            "data": {**_SERVICE, "queues.yaml": json.dumps({"partitions": [partition]})},
        }
    )
    known = {"KUBECONFIG": str(plane.kubeconfig()), "NAMESPACE": _NAMESPACE, "HOME": str(plane.folder)}
    process = plane.enter(plane.process("yunikorn", (), known))
    plane.admin.create(_probe(probed))
    probe = pods(_NAMESPACE, _PROBE)
    process.wait_until(lambda: "nodeName" in (plane.admin.get(probe) or {"spec": {}})["spec"])
    plane.admin.delete(probe)
    process.wait_until(lambda: plane.admin.get(probe) is None)
    return process


def _probe(queue: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _PROBE, "namespace": _NAMESPACE, "labels": {APPLICATION: _PROBE, QUEUE: queue}},
        "spec": {
            "schedulerName": NAME,
            "containers": [{"name": _PROBE, "image": "image:1", "resources": {"requests": {"cpu": "1m"}}}],
        },
    }
