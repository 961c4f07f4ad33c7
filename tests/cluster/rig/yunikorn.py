"""YuniKorn, with the queues of a test; it schedules the pods that name it."""

import json

from rig.api import build_manifest, pods

NAME = "yunikorn"
_NAMESPACE = "yunikorn"
_PROBE = "probe"
_SERVICE = {"service.schedulingInterval": "100ms"}  # A tenth of the default, to shorten the tests.
QUEUE = "yunikorn.apache.org/queue"
APPLICATION = "yunikorn.apache.org/app-id"
TASK_GROUPS = "yunikorn.apache.org/task-groups"


def start(plane, queues, probed):
    """Start YuniKorn with these queues under the root. Return when it schedules a pod of queue `probed`."""
    plane.namespace(_NAMESPACE)
    partition = {
        "name": "default",
        "placementrules": [{"name": "provided", "create": False}],
        "queues": [{"name": "root", "submitacl": "*", "queues": list(queues)}],
    }
    data = {**_SERVICE, "queues.yaml": json.dumps({"partitions": [partition]})}
    plane.admin.apply(build_manifest("v1", "ConfigMap", "yunikorn-configs", _NAMESPACE, data=data))
    known = {"KUBECONFIG": str(plane.kubeconfig()), "NAMESPACE": _NAMESPACE, "HOME": str(plane.folder)}
    process = plane.enter(plane.process("yunikorn", (), known))
    container = {"name": _PROBE, "image": "image:1", "resources": {"requests": {"cpu": "1m"}}}
    fields = {
        "labels": {APPLICATION: _PROBE, QUEUE: probed},
        "spec": {"schedulerName": NAME, "containers": [container]},
    }
    plane.admin.create(build_manifest("v1", "Pod", _PROBE, _NAMESPACE, **fields))
    probe = pods(_NAMESPACE, _PROBE)
    process.wait_until(lambda: "nodeName" in (plane.admin.get(probe) or {"spec": {}})["spec"])
    plane.admin.delete(probe)
    plane.admin.wait_until_gone(probe)
    return process
