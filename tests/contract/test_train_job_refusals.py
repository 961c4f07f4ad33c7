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
from tiny_service import code_of

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.shell.cluster import ClusterUnavailable

SETTINGS = {"kfpytorch": {"dialect": "trainjob"}}
TRAINER, JOBSET = "trainer.kubeflow.org", "jobset.x-k8s.io"
APIS = {TRAINER: ["v1alpha1"], JOBSET: ["v1alpha2"]}


def job_options(runtime: str = "torch-distributed", **options: Any) -> Any:
    return {"kfpytorch": {"trainJob": {"runtime": runtime, **options}}}


def worker(**fields: Any) -> Any:
    return {"workerReplicas": {"replicas": 1, **fields}}


ROWS = {
    "unequal nodes": (worker(image="other:1"), 'master and worker: image: "train:1" and "other:1"'),
    "pod names that are too long": (worker(replicas=100_001), "custom.workerReplicas.replicas: 100001"),
    "no name of a runtime": (
        job_options("Torch_Distributed"),
        'custom.kfpytorch.trainJob.runtime: "Torch_Distributed"',
    ),
    "restarts of a named runtime": (job_options(maxRestarts=1), "custom.kfpytorch.trainJob.maxRestarts: 1"),
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


def render(folder: Path, options: Any, apis: Any = APIS) -> str:
    """Return the output of `kfpytorch render`, which must reject the task."""
    files = {
        "task.json": MessageToJson(template(options=options)),
        "settings.yaml": yaml.safe_dump({"plugins": {"k8s": SETTINGS}}),
        "capabilities.yaml": json.dumps({"apis": apis}),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    words = ["render", f"{folder}/task.json", "--settings", f"{folder}/settings.yaml"]
    ended = CliRunner().invoke(kfpytorch, [*words, "--capabilities", f"{folder}/capabilities.yaml"])
    assert ended.exit_code != 0, ended.output
    return " ".join(ended.output.split())


def create(folder: Path, options: Any, cluster: ScriptedCluster | None = None, apis: Any = APIS) -> str:
    """Return the message of the failed task that CreateTask accepts; no object is left in the cluster."""
    cluster = cluster or ScriptedCluster()

    async def run() -> str:
        async with serving(folder, cluster, SETTINGS, source=Source(apis)) as served:
            meta = await served.create(options=options)
            assert await served.phase(meta) == "FAILED"
            return str((await served.get(meta)).message)

    message = asyncio.run(run())
    assert cluster.objects == {}
    # `render` separates the field and the value in another way.
    return re.sub(r"([\w ]+(?:\.\w+)*)=", r"\1: ", " ".join(message.split()))


@pytest.mark.parametrize("enter", [render, create])
@pytest.mark.parametrize(("options", "found"), ROWS.values(), ids=[*ROWS])
def test_unsupported_task_is_rejected_by_field_and_value(tmp_path, enter, options, found):
    assert found in enter(tmp_path, options)


@pytest.mark.parametrize("enter", [render, create])
@pytest.mark.parametrize(("apis", "lacking"), MISSING.values(), ids=[*MISSING])
def test_missing_operator_error_contains_the_installation_command(tmp_path, enter, apis, lacking):
    message = enter(tmp_path, job_options(), apis=apis)
    assert f"it has no {lacking}" in message
    assert "kubectl apply --server-side -k" in message


def test_outdated_definition_error_contains_the_upgrade_command(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    unknown = 'strict decoding error: unknown field "spec.runtimePatches"'
    cluster.refusal = RequestRejected(400, "BadRequest", f"TrainJob in version v1alpha1: {unknown}")
    message = create(tmp_path, job_options(), cluster)
    assert unknown in message
    assert "kubectl apply --server-side -k" in message


async def test_unavailable_webhook_fails_no_task(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    cluster.refusal = ClusterUnavailable("failed calling webhook: connection refused")
    async with serving(tmp_path, cluster, SETTINGS) as served:
        assert (await code_of(served.create()))[0] is grpc.StatusCode.UNAVAILABLE
    assert cluster.objects == {}


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
    assert 'custom.kfpytorch.trainJob.runtime: "mpi"' in message
    assert message.endswith("write one of large, torch-distributed")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (job_options(), FOUND),
        # Without a permission, the list has no runtime of the kind.
        (job_options(), []),
        (job_options("own", runtimeKind="TrainingRuntime"), FOUND),
    ],
)
async def test_suitable_or_unlisted_runtime_is_accepted(tmp_path: Path, options: Any, found: Any) -> None:
    cluster = ScriptedCluster()
    cluster.runtimes = found
    async with serving(tmp_path, cluster, SETTINGS) as served:
        await served.create(options=options)
    assert [kind for kind, *_ in cluster.objects] == ["TrainJob"]
