"""Bound pods as JSON, with only what a test is about, and a machine to run them."""

from pathlib import Path
from typing import Any

from backend_plugin.embedded import pod_launch
from backend_plugin.embedded.kubelet_options import KubeletOptions, Machine
from backend_plugin.embedded.pod_launch import Place

Manifest = dict[str, Any]

LABEL = "training.kubeflow.org/"
MACHINE = Machine(
    environment={"HOME": "/home/me", "PATH": "/bin"},
    prefix="/server",
    loopback="lo",
    cpus=8,
    memory=1 << 33,
    psutil="/packages",
)
PLACE = Place("/pods/u", "/tmp/u")


def replica(name: str = "j-worker-1", *, port: str = "40001", **spec: Any) -> Manifest:
    """A pod of job `j` in namespace `a`."""
    metadata = {
        "name": name,
        "namespace": "a",
        "uid": "u",
        "labels": {f"{LABEL}job-name": "j", "team": "vision"},
        "annotations": {"kfpytorch.flyte.org/port": port} if port else {},
    }
    return {"metadata": metadata, "spec": {"nodeName": "node-1", "restartPolicy": "OnFailure", **spec}}


def container(
    *args: str, name: str = "pytorch", env: dict[str, Any] | None = None, **fields: Any
) -> Manifest:
    """A container that runs `args`; a value of `env` that is no text is what `valueFrom` says."""
    said = [
        {"name": key, **({"value": value} if isinstance(value, str) else {"valueFrom": value})}
        for key, value in (env or {}).items()
    ]
    return {"name": name, "image": "train:1", "args": list(args), "env": said, **fields}


def launched(pod: Manifest, **options: Any) -> list[Manifest]:
    """What the containers of a pod are to be."""
    options = {"code": Path("/code"), **options}
    launch = pod_launch.launch(pod, PLACE, KubeletOptions(**options), MACHINE)
    return launch["containers"]


def only(one: Manifest, pod: Manifest | None = None, **options: Any) -> Manifest:
    """What this container of a pod is to be."""
    pod = pod or replica()
    pod = {**pod, "spec": {**pod["spec"], "containers": [one]}}
    return launched(pod, **options)[-1]
