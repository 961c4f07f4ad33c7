"""TrainJobs in an embedded cluster, through the connector, with real processes."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import NAMESPACE, Served, serving, template, wait_until
from wheels import build_wheel, create_environment

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.observed import Pod
from backend_plugin.core.runtimes import PackageJob
from backend_plugin.embedded.cluster import EmbeddedCluster
from backend_plugin.embedded.node_controller import NodeController
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.shell.cluster import LogRequest, ObjectName

SUPPORT = DIALECTS["TrainJob"].runtimes
SETTINGS = {"kfpytorch": {"dialect": "trainjob"}}
PATIENCE = 40.0


class Jobs:
    """An embedded cluster with a connector that creates TrainJobs in it."""

    def __init__(self, cluster: EmbeddedCluster, served: Served) -> None:
        self.cluster = cluster
        self.served = served

    async def create(self, command: str, execution: str = "f1", workers: int = 1, **custom: Any) -> bytes:
        container = {"image": "i", "command": ["/bin/sh", "-c", command]}
        replicas = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": workers}}
        task_template = template(container=container, custom={**replicas, **custom})
        return await self.served.create(execution=execution, template=task_template)

    async def wait_for_phase(self, reference: bytes, phase: str) -> None:
        async def is_reached() -> bool:
            return await self.served.phase(reference) == phase

        await wait_until(is_reached, PATIENCE)

    @property
    def pods(self) -> list[Pod]:
        (entry,) = self.served.cache
        return sorted(entry.pods, key=lambda pod: (pod.attempt, pod.index))

    async def wait_for_pods(self, found: Callable[[list[Pod]], object]) -> list[Pod]:
        await wait_until(lambda: len(list(self.served.cache)) == 1 and bool(found(self.pods)), PATIENCE)
        return self.pods

    async def read_log(self, pod: Pod) -> list[str]:
        name = ObjectName(namespace=NAMESPACE, name=pod.name)
        return [line.text async for line in self.cluster.read_log(name, LogRequest(container="node"))]


@asynccontextmanager
async def open_jobs(folder: Path, options: EmbeddedOptions) -> AsyncIterator[Jobs]:
    (folder / "store").mkdir()
    cluster = await EmbeddedCluster.open(folder / "state", options)
    async with serving(folder / "store", cluster, SETTINGS) as served:  # type: ignore[arg-type]
        yield Jobs(cluster, served)
    await cluster.close()


def play(folder: Path, run: Callable[[Jobs], Awaitable[Any]], images: Mapping[str, str] | None = None) -> Any:
    async def main() -> Any:
        async with open_jobs(folder, EmbeddedOptions(lost_after=0.1, images=images or {})) as jobs:
            return await run(jobs)

    return asyncio.run(main())


def test_job_runtime_is_listed_and_a_package_job_for_it_is_rejected(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        await jobs.create("true", workers=2)
        (runtime,) = await jobs.cluster.list_runtimes()
        assert SUPPORT is not None
        with pytest.raises(RequestRejected, match=r"spec\.trainer\.command: .* does not support it"):
            await jobs.cluster.create(
                SUPPORT.build_package_job(runtime, PackageJob(name="p", namespace=NAMESPACE, seconds=1))
            )
        return await jobs.cluster.list_runtimes(), await jobs.cluster.list_foreign_jobs()

    (runtime,), foreign = play(tmp_path, run)
    assert (runtime.kind, runtime.namespace, runtime.image) == ("TrainingRuntime", NAMESPACE, "i")
    assert (runtime.nodes, runtime.framework, runtime.role) == (3, "torch", "node")
    assert runtime.job == runtime.name
    assert foreign == ()


def test_nodes_run_with_the_environment_of_a_training_job(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        jobs.served.leave("outputs.pb")
        reference = await jobs.create(
            "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $JOB_COMPLETION_INDEX"
        )
        await jobs.wait_for_phase(reference, "SUCCEEDED")
        return {pod.replica: await jobs.read_log(pod) for pod in jobs.pods}

    found = play(tmp_path, run)
    ports = {line.split()[3] for lines in found.values() for line in lines}
    assert len(ports) == 1
    assert ports != {"29500"}
    (port,) = ports
    assert found == {f"node-{rank}": [f"{rank} 2 127.0.0.1 {port} {rank}"] for rank in (0, 1)}


def test_mpi_job_fails_with_a_remedy(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> str:
        reference = await jobs.create("true", kfpytorch={"trainJob": {"framework": "mpi"}})
        await jobs.wait_for_phase(reference, "FAILED")
        return (await jobs.served.get(reference)).message

    message = play(tmp_path, run)
    assert "the embedded cluster runs no MPI jobs" in message
    assert "use pyflyte run, or a cluster with Kubeflow Trainer" in message
    assert "does not support it" not in message


def test_exit_code_of_a_node_fails_the_attempt(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        reference = await jobs.create("test $RANK = 0 || exit 3; exec sleep 600")
        await jobs.wait_for_phase(reference, "FAILED")
        message = (await jobs.served.get(reference)).message
        await jobs.wait_for_pods(lambda pods: all(pod.phase == "Failed" for pod in pods))
        return message.partition("\n")[0], [(pod.replica, pod.attempt) for pod in jobs.pods]

    message, pods = play(tmp_path, run)
    assert message == "node-1 failed: exit code 3 (user-error)"
    # The Job controller deletes the pods that still run.
    assert pods == [("node-1", 0)]


def test_failure_restarts_all_nodes_up_to_the_limit(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        options = {"trainJob": {"maxRestarts": 1}}
        command = "test $RANK = 0 || exit 3; exec sleep 600"
        reference = await jobs.create(command, kfpytorch=options)
        restarted = await jobs.wait_for_pods(lambda pods: len(pods) == 2 and all(pod.attempt for pod in pods))
        await jobs.wait_for_phase(reference, "FAILED")
        return [pod.replica for pod in restarted], [(pod.replica, pod.attempt) for pod in jobs.pods]

    assert play(tmp_path, run) == (["node-0", "node-1"], [("node-1", 1)])


def test_failure_rule_fails_the_task_without_a_restart(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        rules = [{"action": "FailJob", "exitCodes": [42]}]
        options = {"maxRestarts": 3, "podFailurePolicy": rules}
        reference = await jobs.create(
            "test $RANK = 0 || exit 42; exec sleep 600", kfpytorch={"trainJob": options}
        )
        await jobs.wait_for_phase(reference, "FAILED")
        return (await jobs.served.get(reference)).message.partition("\n")[0], [
            (pod.replica, pod.attempt) for pod in jobs.pods
        ]

    message, pods = play(tmp_path, run)
    assert message == "node-1 failed: exit code 42 (user-error)"
    assert ("node-1", 0) in pods
    assert all(attempt == 0 for _, attempt in pods)


def test_ignore_rule_replaces_a_failed_pod(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        jobs.served.leave("outputs.pb")
        rules = [{"action": "Ignore", "exitCodes": [42]}]
        reference = await jobs.create(
            f"test $RANK = 0 || mkdir {tmp_path}/once || exit 0; test $RANK = 0 || exit 42",
            kfpytorch={"trainJob": {"podFailurePolicy": rules}},
        )
        await jobs.wait_for_phase(reference, "SUCCEEDED")
        return sorted((pod.replica, pod.attempt, pod.phase) for pod in jobs.pods)

    assert play(tmp_path, run) == [
        ("node-0", 0, "Succeeded"),
        ("node-1", 0, "Failed"),
        ("node-1", 0, "Succeeded"),
    ]


def test_success_policy_ends_the_job_with_its_first_node(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        jobs.served.leave("outputs.pb")
        reference = await jobs.create(
            "test $RANK = 0 || exec sleep 600",
            kfpytorch={"trainJob": {"successPolicy": {"succeededIndexes": "0"}}},
        )
        await jobs.wait_for_phase(reference, "SUCCEEDED")
        await jobs.wait_for_pods(lambda pods: not any(pod.phase == "Running" for pod in pods))
        return [(pod.replica, pod.phase) for pod in jobs.pods]

    assert play(tmp_path, run) == [("node-0", "Succeeded")]


def test_exclusive_topology_is_rejected(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> str:
        topology = {"trainJob": {"topology": {"level": "kubernetes.io/hostname"}}}
        reference = await jobs.create("true", kfpytorch=topology)
        return await jobs.served.phase(reference)

    assert play(tmp_path, run) == "FAILED"


def test_deadline_includes_the_time_before_a_restart(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        reference = await jobs.create(
            "sleep 1.5; exit 3",
            workerReplicas={"replicas": 1, "restartPolicy": "RESTART_POLICY_ON_FAILURE"},
            runPolicy={"backoffLimit": 100, "activeDeadlineSeconds": 4},
        )
        await jobs.wait_for_phase(reference, "FAILED")
        return (await jobs.served.get(reference)).message.partition("\n")[0]

    assert play(tmp_path, run) == "it ran for longer than its deadline of 4 s allows"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of all images, with pip."""
    return {"*": str(create_environment(tmp_path_factory.mktemp("image")))}


def test_each_node_installs_the_packages_of_the_task(tmp_path: Path, images: Mapping[str, str]) -> None:
    wheel = build_wheel(tmp_path, "tiny_one", "1.2")

    async def run(jobs: Jobs) -> Any:
        jobs.served.leave("outputs.pb")
        packages = {"trainJob": {"packages": [f"tiny_one @ file://{wheel}"]}}
        shown = "python3 -c 'import tiny_one; print(tiny_one.VERSION)'"
        reference = await jobs.create(shown, kfpytorch=packages)
        await jobs.wait_for_phase(reference, "SUCCEEDED")
        return {pod.replica: (await jobs.read_log(pod))[-1] for pod in jobs.pods}

    assert play(tmp_path, run, images) == {"node-0": "1.2", "node-1": "1.2"}


def test_failed_installation_fails_the_task_with_the_pip_error(
    tmp_path: Path, images: Mapping[str, str]
) -> None:
    async def run(jobs: Jobs) -> str:
        packages = {"trainJob": {"packages": ["tiny_one @ file:///absent.whl"]}}
        reference = await jobs.create("exec sleep 600", kfpytorch=packages)
        await jobs.wait_for_phase(reference, "FAILED")
        message: str = (await jobs.served.get(reference)).message
        return message.partition("\n")[0]

    message = play(tmp_path, run, images)
    assert re.fullmatch(
        r"node-\d failed: packages cannot be installed: ERROR: .*absent.whl.* \(invalid-config\)", message
    )


@pytest.mark.parametrize("disrupt", [NodeController.drain_node, NodeController.fail_node])
def test_lost_node_costs_no_attempt(tmp_path: Path, disrupt: Callable[[NodeController, str], None]) -> None:
    async def run(jobs: Jobs) -> Any:
        jobs.served.leave("outputs.pb")
        reference = await jobs.create(f"while ! test -e {tmp_path}/go; do sleep 0.05; done")
        pods = await jobs.wait_for_pods(
            lambda pods: len(pods) == 2 and all(pod.phase == "Running" for pod in pods)
        )
        disrupt(jobs.cluster.nodes, pods[1].node)
        restarted = await jobs.wait_for_pods(
            lambda pods: len(pods) == 2 and all(pod.attempt and pod.phase == "Running" for pod in pods)
        )
        phase = await jobs.served.phase(reference)
        (tmp_path / "go").touch()
        await jobs.wait_for_phase(reference, "SUCCEEDED")
        return phase, {pod.uid for pod in pods} & {pod.uid for pod in restarted}

    assert play(tmp_path, run) == ("RUNNING", set())


def test_elastic_job_replaces_the_pod_of_a_drained_node(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        elastic = {"minReplicas": 1, "maxReplicas": 2, "nprocPerNode": 1, "rdzvBackend": "c10d"}
        await jobs.create("exec sleep 600", workerReplicas={"replicas": 2}, elasticConfig=elastic)
        pods = await jobs.wait_for_pods(
            lambda pods: len(pods) == 2 and all(pod.phase == "Running" for pod in pods)
        )
        jobs.cluster.nodes.drain_node(pods[1].node)
        replaced = await jobs.wait_for_pods(
            lambda found: len(found) == 2 and found[1].uid != pods[1].uid and found[1].phase == "Running"
        )
        return pods[0].uid == replaced[0].uid, [(pod.replica, pod.attempt) for pod in replaced]

    assert play(tmp_path, run) == (True, [("node-0", 0), ("node-1", 0)])


def test_suspended_job_has_no_pods_until_it_is_resumed(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        reference = await jobs.create("exec sleep 600")
        await jobs.wait_for_phase(reference, "RUNNING")
        (entry,) = jobs.served.cache
        name = entry.object_name
        await jobs.cluster.patch(name, {"spec": {"suspend": True}})
        await jobs.wait_for_pods(lambda pods: not pods)
        await jobs.cluster.patch(name, {"spec": {"suspend": False}})
        await jobs.wait_for_phase(reference, "RUNNING")
        job = await jobs.cluster.get(name)
        conditions = job and job["status"]["conditions"]
        return [(each["type"], each["reason"]) for each in conditions], [pod.attempt for pod in jobs.pods]

    assert play(tmp_path, run) == ([("Suspended", "Resumed")], [0, 0])


def test_deletion_of_a_job_deletes_its_objects(tmp_path: Path) -> None:
    async def run(jobs: Jobs) -> Any:
        reference = await jobs.create("exec sleep 600")
        await jobs.wait_for_phase(reference, "RUNNING")
        (entry,) = jobs.served.cache
        name = entry.object_name
        before = [await jobs.cluster.get(name), *await jobs.cluster.list_prerequisites()]
        await jobs.cluster.delete(name)

        async def is_gone() -> bool:
            return not await jobs.cluster.list_pods(name) and not await jobs.cluster.list_prerequisites()

        await wait_until(is_gone, PATIENCE)
        return [each and each["kind"] for each in before], await jobs.cluster.get(name)

    assert play(tmp_path, run) == (["TrainJob", "TrainingRuntime"], None)
