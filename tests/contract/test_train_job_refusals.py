"""Tasks that a TrainJob cannot run are rejected at each entrance, by field and value, without an object."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from click.testing import CliRunner
from google.protobuf.json_format import MessageToJson
from scripted_cluster import ScriptedCluster
from serving import NAMESPACE, serving, template

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.shell.cluster import ClusterUnavailable

SETTINGS = {"kfpytorch": {"dialect": "trainjob"}}
TRAINER, JOBSET = "trainer.kubeflow.org", "jobset.x-k8s.io"
APIS = {TRAINER: ["v1alpha1"], JOBSET: ["v1alpha2"]}
REPLICAS = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}}
OTHER_IMAGE = {**REPLICAS, "workerReplicas": {"replicas": 1, "image": "other:1"}}
RUNTIME = {"runtime": "torch-distributed"}


ROWS = {
    "unequal nodes": (OTHER_IMAGE, {}, 'master and worker: image: "train:1" and "other:1"'),
    "pod names that are too long": (
        {**REPLICAS, "workerReplicas": {"replicas": 100_001}},
        {},
        "custom.workerReplicas.replicas: 100001",
    ),
    "no name of a runtime": (
        REPLICAS,
        {"runtime": "Torch_Distributed"},
        'custom.kfpytorch.trainJob.runtime: "Torch_Distributed"',
    ),
    "restarts of a named runtime": (
        REPLICAS,
        {**RUNTIME, "maxRestarts": 1},
        "custom.kfpytorch.trainJob.maxRestarts: 1",
    ),
}
MISSING = {
    "no Trainer": ({JOBSET: ["v1alpha2"]}, f"{TRAINER}/v1alpha1"),
    "no JobSet": ({TRAINER: ["v1alpha1"]}, JOBSET),
    "another version of Trainer": ({TRAINER: ["v9"], JOBSET: ["v1alpha2"]}, f"{TRAINER}/v1alpha1"),
}


class Source:
    """The capabilities of a cluster with these APIs."""

    def __init__(self, apis: Any) -> None:
        self._apis = apis

    async def fetch_capabilities(self, *_: Any, **__: Any) -> Capabilities:
        return Capabilities(apis=self._apis)


def build_custom(custom: Any, options: Any) -> Any:
    return {**custom, "kfpytorch": {"trainJob": options}} if options else custom


def render(folder: Path, custom: Any, apis: Any = APIS) -> str:
    """Return the output of `kfpytorch render`, which must reject the task."""
    files = {
        "task.json": MessageToJson(template(custom=custom)),
        "settings.yaml": yaml.safe_dump({"plugins": {"k8s": SETTINGS}}),
        "capabilities.yaml": json.dumps({"apis": apis}),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    words = ["render", f"{folder}/task.json", "--settings", f"{folder}/settings.yaml"]
    ended = CliRunner().invoke(kfpytorch, [*words, "--capabilities", f"{folder}/capabilities.yaml"])
    assert ended.exit_code != 0, ended.output
    return " ".join(ended.output.split())


def create(folder: Path, custom: Any, cluster: ScriptedCluster | None = None, apis: Any = APIS) -> str:
    """Return the message of the failed task that CreateTask accepts; no object is left in the cluster."""
    cluster = cluster or ScriptedCluster()

    async def run() -> str:
        async with serving(folder, cluster, SETTINGS, source=Source(apis)) as served:
            resource = await served.get(await served.create(custom=custom))
            assert await served.phase(await served.create(custom=custom)) == "FAILED"
            return str(resource.message)

    message = asyncio.run(run())
    assert cluster.objects == {}
    # `render` separates the field and the value in another way.
    return re.sub(r"([\w ]+(?:\.\w+)*)=", r"\1: ", " ".join(message.split()))


@pytest.mark.parametrize("enter", [render, create])
@pytest.mark.parametrize(("custom", "options", "found"), ROWS.values(), ids=[*ROWS])
def test_unsupported_task_is_rejected_by_field_and_value(
    tmp_path: Path, enter: Any, custom: Any, options: Any, found: str
) -> None:
    assert found in enter(tmp_path, build_custom(custom, options))


@pytest.mark.parametrize("enter", [render, create])
@pytest.mark.parametrize(("apis", "lacking"), MISSING.values(), ids=[*MISSING])
def test_missing_operator_error_contains_the_installation_command(
    tmp_path: Path, enter: Any, apis: Any, lacking: str
) -> None:
    message = enter(tmp_path, build_custom(REPLICAS, RUNTIME), apis=apis)
    assert f"it has no {lacking}" in message
    assert "kubectl apply --server-side -k" in message


def test_outdated_definition_error_contains_the_upgrade_command(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    unknown = 'strict decoding error: unknown field "spec.runtimePatches"'
    cluster.refusal = RequestRejected(400, "BadRequest", f"TrainJob in version v1alpha1: {unknown}")
    message = create(tmp_path, build_custom(REPLICAS, RUNTIME), cluster)
    assert unknown in message
    assert "kubectl apply --server-side -k" in message


async def test_unavailable_webhook_fails_no_task(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    cluster.refusal = ClusterUnavailable("failed calling webhook: connection refused")
    async with serving(tmp_path, cluster, SETTINGS) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.create(custom=REPLICAS)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert NAMESPACE not in str(cluster.objects)


def build_runtime(name: str, role: str = "node", **fields: Any) -> Runtime:
    return Runtime(name=name, kind="ClusterTrainingRuntime", role=role, **fields)


FOUND = [
    build_runtime("torch-distributed"),
    build_runtime("torch-large"),
    build_runtime("mpi", role="launcher"),
    Runtime(name="of-a-job", kind="TrainingRuntime", role="node", namespace=NAMESPACE, job="of-a-job"),
]


def test_unsuitable_runtime_is_rejected_with_the_suitable_ones(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    cluster.runtimes = FOUND
    message = create(tmp_path, build_custom(REPLICAS, {"runtime": "mpi"}), cluster)
    assert 'custom.kfpytorch.trainJob.runtime: "mpi"' in message
    assert message.endswith("write one of torch-distributed, torch-large")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (RUNTIME, FOUND),
        # Without a permission, the list has no runtime of the kind.
        (RUNTIME, []),
        ({"runtime": "own", "runtimeKind": "TrainingRuntime"}, FOUND),
    ],
)
async def test_suitable_or_unlisted_runtime_is_accepted(tmp_path: Path, options: Any, found: Any) -> None:
    cluster = ScriptedCluster()
    cluster.runtimes = found
    async with serving(tmp_path, cluster, SETTINGS) as served:
        await served.create(custom=build_custom(REPLICAS, options))
    assert [kind for kind, *_ in cluster.objects] == ["TrainJob"]
