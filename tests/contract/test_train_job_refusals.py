"""Tasks that the cluster cannot run as a TrainJob fail with a remedy, and leave no object."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from scripted_cluster import ScriptedCluster
from serving import NAMESPACE, serving

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.scheduling.capabilities import Capabilities

SETTINGS = {"kfpytorch": {"dialect": "trainjob"}}


def job_options(runtime: str = "torch-distributed", **options: Any) -> Any:
    return {"kfpytorch": {"trainJob": {"runtime": runtime, **options}}}


class WithoutJobSet:
    """The capabilities of a cluster in which only Trainer is installed."""

    async def fetch_capabilities(self, *_: Any, **__: Any) -> Capabilities:
        return Capabilities(apis={"trainer.kubeflow.org": ("v1alpha1",)})


def create(folder: Path, options: Any, cluster: ScriptedCluster, source: Any = None) -> str:
    """Return the message of the failed task that CreateTask accepts; no object is left in the cluster."""

    async def run() -> str:
        async with serving(folder, cluster, SETTINGS, capabilities=source) as served:
            meta = await served.create(options=options)
            assert await served.phase(meta) == "FAILED"
            return str((await served.get(meta)).message)

    message = asyncio.run(run())
    assert cluster.objects == {}
    return message


def test_missing_operator_error_contains_the_installation_command(tmp_path: Path) -> None:
    message = create(tmp_path, job_options(), ScriptedCluster(), WithoutJobSet())
    assert "it has no jobset.x-k8s.io" in message
    assert "kubectl apply --server-side -k" in message


def test_outdated_definition_error_contains_the_upgrade_command(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    unknown = 'strict decoding error: unknown field "spec.runtimePatches"'
    cluster.refusal = RequestRejected(400, "BadRequest", f"TrainJob in version v1alpha1: {unknown}")
    message = create(tmp_path, job_options(), cluster)
    assert unknown in message
    assert "kubectl apply --server-side -k" in message


FOUND = [
    Runtime(name="torch-distributed", kind="ClusterTrainingRuntime", role="node"),
    Runtime(name="large", kind="ClusterTrainingRuntime", role="node"),
    Runtime(name="mpi", kind="ClusterTrainingRuntime", role="launcher"),
    Runtime(name="of-a-job", kind="TrainingRuntime", role="node", namespace=NAMESPACE, job="of-a-job"),
]


def test_unsuitable_runtime_is_rejected_with_the_suitable_ones(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    cluster.runtimes = FOUND
    message = create(tmp_path, job_options("mpi"), cluster)
    assert 'custom.kfpytorch.trainJob.runtime="mpi"' in message
    assert message.endswith("write one of large, torch-distributed")


# Without a permission, the list has no runtime of the kind.
@pytest.mark.parametrize("options", [job_options(), job_options("own", runtimeKind="TrainingRuntime")])
async def test_suitable_or_unlisted_runtime_is_accepted(tmp_path: Path, options: Any) -> None:
    cluster = ScriptedCluster()
    cluster.runtimes = FOUND
    async with serving(tmp_path, cluster, SETTINGS) as served:
        await served.create(options=options)
    assert [kind for kind, *_ in cluster.objects] == ["TrainJob"]
