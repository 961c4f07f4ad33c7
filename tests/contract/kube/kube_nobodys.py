"""Old jobs whose execution may be gone."""

import hashlib
import json
from typing import Any

from kube_server import KubeServer
from kube_world import JOBS, job

from backend_plugin.core import job_ref
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import JobRef

LONG_AGO = "2026-01-01T00:00:00Z"
MARK = "kfpytorch.flyte.org/workflow-location"


def build_name(execution: str) -> str:
    return f"{execution}-n0-0-0123456789ab"


def prefix(execution: str) -> str:
    return f"s3://bucket/{execution}/n0/0"


def ours(execution: str, **metadata: Any) -> Any:
    """Return an old job of the first attempt of a node."""
    identity = hashlib.sha256(prefix(execution).encode()).hexdigest()[:40]
    annotations = {
        "kfpytorch.flyte.org/task": json.dumps({"execution": execution, "nodeId": "n0"}),
        "kfpytorch.flyte.org/output-prefix": prefix(execution),
        **metadata.pop("annotations", {}),
    }
    about = {"name": build_name(execution), "namespace": "ns", "creationTimestamp": LONG_AGO}
    labels = {"kfpytorch.flyte.org/job": identity}
    return job(metadata={**about, "labels": labels, "annotations": annotations, **metadata})


def reference(execution: str) -> bytes:
    """Return an unsigned reference to the job of an execution."""
    return job_ref.encode(
        JobRef(
            dialect=DEFAULT.name,
            namespace="ns",
            name=build_name(execution),
            output_prefix=prefix(execution),
        )
    )


def workflow(name: str, namespace: str = "ns") -> Any:
    return {"metadata": {"name": name, "namespace": namespace}}


def names(server: KubeServer) -> list[str]:
    return sorted(each["metadata"]["name"] for each in server.list_objects("pytorchjobs"))


def metadata(server: KubeServer, name: str) -> Any:
    return server.get_object(JOBS, name)["metadata"]
