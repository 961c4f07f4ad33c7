"""Builders for bound pods with few fields, and for the containers that the kubelet derives from them."""

from pathlib import Path
from typing import Any

from backend_plugin.embedded import pod_launch
from backend_plugin.embedded.options import EmbeddedOptions, HostInfo

Manifest = dict[str, Any]

OF_SERVER = {"HOME": "/home/me", "PATH": "/bin"}
MACHINE = HostInfo(environment=OF_SERVER, prefix="/server", cpus=8, memory=1 << 33, psutil="/packages")
PATHS = ("/pods/u", "/tmp/u")


def replica(name: str = "j-worker-1", *, port: str = "40001", **spec: Any) -> Manifest:
    """Build a pod of job `j` in namespace `a`."""
    metadata = {
        "name": name,
        "namespace": "a",
        "uid": "u",
        "labels": {"training.kubeflow.org/job-name": "j", "team": "vision"},
        "annotations": {"kfpytorch.flyte.org/port": port} if port else {},
    }
    defaults = {"nodeName": "node-1", "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": {**defaults, **spec}}


def container(*args: str, name: str = "pytorch", env: Manifest | None = None, **fields: Any) -> Manifest:
    """Build a container that runs `args`. A value of `env` that is not text becomes its `valueFrom`."""
    variables = [
        {"name": key, **({"value": value} if isinstance(value, str) else {"valueFrom": value})}
        for key, value in (env or {}).items()
    ]
    return {"name": name, "image": "train:1", "args": list(args), "env": variables, **fields}


def launched(pod: Manifest, **options: Any) -> list[Manifest]:
    options = {"code": Path("/code"), **options}
    return pod_launch.build_launch(pod, *PATHS, EmbeddedOptions(**options), MACHINE)["containers"]


def only(one: Manifest, pod: Manifest | None = None, **options: Any) -> Manifest:
    pod = pod or replica()
    pod = {**pod, "spec": {**pod["spec"], "containers": [one]}}
    return launched(pod, **options)[-1]
