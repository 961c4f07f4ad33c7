"""TrainJobs in an embedded cluster, through the connector, with real processes."""

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from serving import NAMESPACE, Served, is_phase, serving
from tiny_service import wait_until
from wheels import build_wheel, create_environment

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.runtimes import PackageJob
from backend_plugin.embedded.cluster import EmbeddedCluster
from backend_plugin.embedded.node_controller import NodeController
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.shell.cluster import LogRequest, ObjectName

PATIENCE = 40.0


@dataclass
class Jobs:
    """An embedded cluster with a connector that creates TrainJobs in it."""

    cluster: EmbeddedCluster
    served: Served

    async def create(self, command, workers=1, **custom):
        container = {"image": "i", "command": ["/bin/sh", "-c", command]}
        return await self.served.create(workers=workers, container=container, options=custom)

    async def wait_for_phase(self, reference, phase):
        await wait_until(lambda: is_phase(self.served, reference, phase), PATIENCE)

    @property
    def pods(self):
        (entry,) = self.served.cache
        return sorted(entry.pods, key=lambda pod: (pod.attempt, pod.index))

    async def wait_for_pods(self, found):
        await wait_until(lambda: len(list(self.served.cache)) == 1 and bool(found(self.pods)), PATIENCE)
        return self.pods

    async def fail(self, command, **custom):
        """Create a job, and return the first line of its message when it has failed."""
        reference = await self.create(command, **custom)
        await self.wait_for_phase(reference, "FAILED")
        return (await self.served.get(reference)).message.partition("\n")[0]

    async def succeed(self, command, **custom):
        self.served.leave("outputs.pb")
        await self.wait_for_phase(await self.create(command, **custom), "SUCCEEDED")

    async def read_log(self, pod):
        name = ObjectName(namespace=NAMESPACE, name=pod.name)
        return [line.text async for line in self.cluster.read_log(name, LogRequest(container="node"))]


@asynccontextmanager
async def open_jobs(folder, images=None):
    options = EmbeddedOptions(lost_after=0.1, images=images or {})
    cluster = await EmbeddedCluster.open(folder / "state", options)
    async with serving(folder / "store", cluster, {"kfpytorch": {"dialect": "trainjob"}}) as served:
        yield Jobs(cluster, served)
    await cluster.close()


@pytest.fixture
def jobs(tmp_path):
    return open_jobs(tmp_path)


@pytest.fixture
def jobs_with_pip(tmp_path):
    return open_jobs(tmp_path, {"*": str(create_environment(tmp_path / "image"))})


def are_two_running(pods):
    return len(pods) == 2 and all(pod.phase == "Running" for pod in pods)


async def test_job_runtime_is_listed_and_a_package_job_for_it_is_rejected(jobs):
    await jobs.create("true", workers=2)
    (runtime,) = await jobs.cluster.list_runtimes()
    package_job = PackageJob(name="p", namespace=NAMESPACE, seconds=1)
    with pytest.raises(RequestRejected, match=r"spec\.trainer\.command: .* does not support it"):
        await jobs.cluster.create(DIALECTS["TrainJob"].runtimes.build_package_job(runtime, package_job))
    assert [runtime] == await jobs.cluster.list_runtimes()
    assert (runtime.kind, runtime.namespace, runtime.image) == ("TrainingRuntime", NAMESPACE, "i")
    assert (runtime.nodes, runtime.framework, runtime.job) == (3, "torch", runtime.name)
    assert await jobs.cluster.list_foreign_jobs() == ()


async def test_nodes_run_with_the_environment_of_a_training_job(jobs):
    await jobs.succeed("echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $JOB_COMPLETION_INDEX")
    found = {pod.replica: await jobs.read_log(pod) for pod in jobs.pods}
    (port,) = {line.split()[3] for lines in found.values() for line in lines}
    assert port != "29500"
    assert found == {f"node-{rank}": [f"{rank} 2 127.0.0.1 {port} {rank}"] for rank in (0, 1)}


async def test_mpi_job_and_exclusive_topology_are_rejected(jobs):
    for options, message in (
        ({"framework": "mpi"}, "the embedded cluster runs no MPI jobs"),
        ({"topology": {"level": "kubernetes.io/hostname"}}, "the embedded cluster does not support it"),
    ):
        assert message in await jobs.fail("true", kfpytorch={"trainJob": options})


async def test_failure_restarts_all_nodes_up_to_the_limit(jobs):
    command = "test $RANK = 0 || exit 3; exec sleep 600"
    reference = await jobs.create(command, kfpytorch={"trainJob": {"maxRestarts": 1}})
    restarted = await jobs.wait_for_pods(lambda pods: len(pods) == 2 and all(pod.attempt for pod in pods))
    await jobs.wait_for_phase(reference, "FAILED")
    assert [pod.replica for pod in restarted] == ["node-0", "node-1"]
    assert [(pod.replica, pod.attempt) for pod in jobs.pods] == [("node-1", 1)]


async def test_failure_rule_fails_the_task_without_a_restart(jobs):
    options = {"maxRestarts": 3, "podFailurePolicy": [{"action": "FailJob", "exitCodes": [42]}]}
    message = await jobs.fail("test $RANK = 0 || exit 42; exec sleep 600", kfpytorch={"trainJob": options})
    assert message == "node-1 failed: exit code 42 (user-error)"
    assert ("node-1", 0) in [(pod.replica, pod.attempt) for pod in jobs.pods]
    assert not any(pod.attempt for pod in jobs.pods)


async def test_ignore_rule_replaces_a_failed_pod(jobs, tmp_path):
    rules = [{"action": "Ignore", "exitCodes": [42]}]
    await jobs.succeed(
        f"test $RANK = 0 || mkdir {tmp_path}/once || exit 0; test $RANK = 0 || exit 42",
        kfpytorch={"trainJob": {"podFailurePolicy": rules}},
    )
    assert sorted((pod.replica, pod.attempt, pod.phase) for pod in jobs.pods) == [
        ("node-0", 0, "Succeeded"),
        ("node-1", 0, "Failed"),
        ("node-1", 0, "Succeeded"),
    ]


async def test_success_policy_ends_the_job_with_its_first_node(jobs):
    policy = {"trainJob": {"successPolicy": {"succeededIndexes": "0"}}}
    await jobs.succeed("test $RANK = 0 || exec sleep 600", kfpytorch=policy)
    await jobs.wait_for_pods(lambda pods: not any(pod.phase == "Running" for pod in pods))
    assert [(pod.replica, pod.phase) for pod in jobs.pods] == [("node-0", "Succeeded")]


async def test_deadline_includes_the_time_before_a_restart(jobs):
    message = await jobs.fail(
        "sleep 1.5; exit 3",
        workerReplicas={"replicas": 1, "restartPolicy": "RESTART_POLICY_ON_FAILURE"},
        runPolicy={"backoffLimit": 100, "activeDeadlineSeconds": 3},
    )
    assert message == "it ran for longer than its deadline of 3 s allows"


async def test_each_node_installs_the_packages_of_the_task(jobs_with_pip, tmp_path):
    wheel = build_wheel(tmp_path, "tiny_one", "1.2")
    await jobs_with_pip.succeed(
        "python3 -c 'import tiny_one; print(tiny_one.VERSION)'",
        kfpytorch={"trainJob": {"packages": [f"tiny_one @ file://{wheel}"]}},
    )
    lines = {pod.replica: (await jobs_with_pip.read_log(pod))[-1] for pod in jobs_with_pip.pods}
    assert lines == {"node-0": "1.2", "node-1": "1.2"}


async def test_failed_installation_fails_the_task_with_the_pip_error(jobs_with_pip):
    packages = {"trainJob": {"packages": ["tiny_one @ file:///absent.whl"]}}
    message = await jobs_with_pip.fail("exec sleep 600", kfpytorch=packages)
    assert re.fullmatch(
        r"node-\d failed: packages cannot be installed: ERROR: .*absent.whl.* \(invalid-config\)", message
    )


@pytest.mark.parametrize("disrupt", [NodeController.drain_node, NodeController.fail_node])
async def test_lost_node_costs_no_attempt(jobs, tmp_path, disrupt):
    jobs.served.leave("outputs.pb")
    reference = await jobs.create(f"while ! test -e {tmp_path}/go; do sleep 0.05; done")
    pods = await jobs.wait_for_pods(are_two_running)
    disrupt(jobs.cluster.nodes, pods[1].node)
    restarted = await jobs.wait_for_pods(lambda new: are_two_running(new) and all(pod.attempt for pod in new))
    assert await jobs.served.phase(reference) == "RUNNING"
    (tmp_path / "go").touch()
    await jobs.wait_for_phase(reference, "SUCCEEDED")
    assert {pod.uid for pod in pods} & {pod.uid for pod in restarted} == set()


async def test_deletion_of_a_job_deletes_its_objects(jobs):
    await jobs.wait_for_phase(await jobs.create("exec sleep 600"), "RUNNING")
    (entry,) = jobs.served.cache
    name = entry.object_name
    assert [each["kind"] for each in await jobs.cluster.list_prerequisites()] == ["TrainingRuntime"]
    await jobs.cluster.delete(name)

    async def is_gone():
        return not await jobs.cluster.list_pods(name) and not await jobs.cluster.list_prerequisites()

    await wait_until(is_gone, PATIENCE)
    assert await jobs.cluster.get(name) is None
