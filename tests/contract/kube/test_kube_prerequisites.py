"""The list of the prerequisites of jobs, from which a server deletes those without a job."""

import asyncio
from pathlib import Path
from typing import Any

from kube_server import served
from kube_world import opened, options
from serving import NAMESPACE

from backend_plugin.core.dialects.trainjob.resource import RUNTIME
from backend_plugin.kube.api_resources import IDENTITY


def build_runtime(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": RUNTIME.api_version,
        "kind": RUNTIME.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {IDENTITY: "a"}, **metadata},
        "spec": {},
    }


def test_only_runtimes_without_an_owner_are_listed(tmp_path: Path) -> None:
    with served() as server:
        server.groups[RUNTIME.group] = {RUNTIME.plural: RUNTIME.version}
        server.objects.namespaces[NAMESPACE] = "Active"
        owner = {"apiVersion": "v1", "kind": "TrainJob", "name": "j", "uid": "u"}

        async def run() -> list[Any]:
            async with opened(options(server, tmp_path)) as cluster:
                for manifest in (build_runtime("left"), build_runtime("owned", ownerReferences=[owner])):
                    await cluster.create(manifest)
                return [*await cluster.list_prerequisites()]

        (found,) = asyncio.run(run())
    assert (found["apiVersion"], found["kind"]) == (RUNTIME.api_version, RUNTIME.kind)
    assert found["metadata"]["name"] == "left"
