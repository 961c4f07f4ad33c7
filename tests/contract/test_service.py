"""The responses that FlytePropeller gets over a real channel."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from scripted_cluster import ScriptedCluster, ago
from serving import NAMESPACE, Served, get_now, metadata, serving, template, wait_until
from stories import is_phase, name_of, pod, ready_server, run_story, status, terminated

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.verdict import Phase


async def test_the_same_attempt_is_asked_for_once(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        metas = await asyncio.gather(*(served.create() for _ in range(8)))
        assert len(set(metas)) == 1
        assert [key[0] for key in served.cluster.objects] == ["PyTorchJob"]
        assert await served.phase(metas[0]) == "QUEUED"


async def test_a_job_that_is_being_deleted_is_nobodys_attempt(tmp_path: Path) -> None:
    """A job with finalizers is deleted later; after that, the same attempt can create one."""

    async with ready_server(tmp_path) as served:
        await served.create()
        ((key, made),) = served.cluster.objects.items()
        metadata = {**made["metadata"], "deletionTimestamp": ago(0)}
        served.cluster.objects[key] = {**made, "metadata": metadata}
        with pytest.raises(grpc.RpcError) as caught:
            await served.create()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        del served.cluster.objects[key]
        await served.create()


async def test_a_job_belongs_to_the_workflow_of_its_execution(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        owner = OwnerReference(
            api_version="flyte.lyft.com/v1alpha1", kind="FlyteWorkflow", name="f1", uid="w"
        )
        served.cluster.owners[NAMESPACE, "f1"] = owner
        await served.create()
        (job,) = served.cluster.objects.values()
        (reference,) = job["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["uid"]) == ("FlyteWorkflow", "f1", "w")


async def test_a_task_that_cannot_be_meant_fails_at_the_first_look(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create(template=template(custom={"workerReplicas": {"replicas": -1}}))
        assert await served.phase(meta) == "FAILED"
        assert "custom.workerReplicas.replicas" in (await served.get(meta)).message
        assert served.cluster.objects == {}
        await served.delete(meta)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"output_prefix": "file:///etc"}, "output_prefix"),
        ({"output_prefix": "http://evil.example/x"}, "output_prefix"),
        ({"output_prefix": ""}, "output_prefix"),
        ({"namespace": "kube-system"}, "task_execution_metadata.namespace"),
        ({"namespace": ""}, "task_execution_metadata.namespace"),
    ],
)
async def test_what_this_server_does_for_nobody_is_refused(tmp_path: Path, change: Any, word: str) -> None:
    async with ready_server(tmp_path) as served:
        about = metadata()
        about.namespace = change.get("namespace", about.namespace)
        request = admin.CreateTaskRequest(
            template=template(),
            output_prefix=change.get("output_prefix", served.prefix()),
            task_execution_metadata=about,
        )
        meta = (await served.call("CreateTask", request, admin.CreateTaskResponse)).resource_meta
        assert await served.phase(meta) == "FAILED"
        assert word in (await served.get(meta)).message
        assert served.cluster.calls == []


async def test_a_cluster_that_refuses_for_good_is_quoted(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        served.cluster.refusal = RequestRejected(
            422, "Invalid", 'PyTorchJob "x" is invalid: spec: Required value'
        )
        meta = await served.create()
        resource = await served.get(meta)
        assert (await served.phase(meta), resource.message.partition(":")[0]) == (
            "FAILED",
            "the cluster refuses the job (Invalid)",
        )


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        ({"away": True}, grpc.StatusCode.UNAVAILABLE),
        (
            {"refusal": RequestRejected(403, "Forbidden", 'jobs "x" is forbidden: exceeded quota: q')},
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ),
    ],
)
async def test_what_may_pass_is_worth_asking_again(
    tmp_path: Path, trouble: Any, code: grpc.StatusCode
) -> None:
    async with ready_server(tmp_path) as served:
        vars(served.cluster).update(trouble)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.create()
        assert refused.value.code() is code
        vars(served.cluster).update(away=False, refusal=None)
        assert await served.phase(await served.create()) == "QUEUED"


async def test_get_asks_nobody(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create()
        name = name_of(meta)
        served.cluster.status(name, status("Running"))
        for replica in ("master-0", "worker-0"):
            served.cluster.apply(pod(name, replica, "Running"))
        before = list(served.cluster.calls)
        served.cluster.away = True
        served.cluster.slow.clear()
        for _ in range(20):
            assert await served.phase(meta) == "RUNNING"
        assert served.cluster.calls == before


async def test_an_error_file_makes_a_failure_of_a_job_that_succeeded(tmp_path: Path) -> None:
    error = ContainerError(code="USER:ValueError", message="ValueError: no data", worker="")

    async with ready_server(tmp_path) as served:
        meta = await served.create()
        served.leave("error-1.pb", ErrorDocument(error=error).SerializeToString())
        served.cluster.status(name_of(meta), status("Running", "Succeeded"))
        await wait_until(lambda: is_phase(served, meta, "FAILED"))
        assert "no data" in (await served.get(meta)).message


async def test_peers_that_a_failure_leaves_running_are_stopped(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create()
        name = name_of(meta)
        served.cluster.apply(pod(name, "master-0", "Failed", containerStatuses=terminated(1)))
        served.cluster.apply(pod(name, "worker-0", "Running"))
        served.cluster.status(name, status("Running", "Failed"))
        await wait_until(lambda: ("Pod", NAMESPACE, f"{name}-worker-0") not in served.cluster.objects)
        assert ("Pod", NAMESPACE, f"{name}-master-0") in served.cluster.objects


async def test_a_deadline_ends_a_job_and_is_told_ever_after(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        custom = {
            "masterReplicas": {"replicas": 1},
            "workerReplicas": {"replicas": 1},
            "runPolicy": {"activeDeadlineSeconds": 60},
        }
        meta = await served.create(template=template(custom=custom))
        name = name_of(meta)
        began = {"running": {"startedAt": ago(90)}}
        for replica in ("master-0", "worker-0"):
            served.cluster.apply(
                pod(name, replica, "Running", containerStatuses=[{"name": "pytorch", "state": began}])
            )
        served.cluster.status(name, status("Running"))
        await wait_until(lambda: is_phase(served, meta, "FAILED"))
        said = (await served.get(meta)).message
        await wait_until(lambda: "patch" in served.cluster.calls)
        stored = served.cluster.objects["PyTorchJob", NAMESPACE, name]
        assert stored["spec"]["runPolicy"]["activeDeadlineSeconds"] == 1
        for replica in ("master-0", "worker-0"):
            served.cluster.remove("Pod", NAMESPACE, f"{name}-{replica}")
        assert (await served.get(meta)).message == said
        assert served.cluster.calls.count("patch") == 1
        assert served.cluster.awaited == []  # The update is stored, so no call waits for it.
        await served.delete(meta)
        assert served.cluster.awaited == ["delete"]


async def test_a_job_that_trains_on_is_ended_by_its_deadline_though_nobody_asks(tmp_path: Path) -> None:
    clock = [get_now()]

    async with serving(tmp_path, now=lambda: clock[0], seconds=1) as served:
        meta = await served.create(
            template=template(
                custom={"workerReplicas": {"replicas": 1}, "runPolicy": {"activeDeadlineSeconds": 1800}}
            )
        )
        name = name_of(meta)
        began = [{"name": "pytorch", "state": {"running": {"startedAt": ago(0)}}}]
        for replica in ("master-0", "worker-0"):
            served.cluster.apply(pod(name, replica, "Running", containerStatuses=began))
        served.cluster.status(name, status("Running"))
        entry = served.cache.get((NAMESPACE, name))
        assert entry is not None
        await wait_until(lambda: entry.steady is not None)
        served.cluster.apply(pod(name, "worker-0", "Pending"))
        assert entry.steady is None
        served.cluster.apply(pod(name, "worker-0", "Running", containerStatuses=began))
        await wait_until(lambda: entry.steady is not None)
        # Later than the verdict is known to be stable, but before the deadline. Pod changes do not change
        # the job.
        clock[0] += timedelta(minutes=20)
        served.cluster.apply(pod(name, "worker-0", "Running", containerStatuses=began, hostIP="10.0.0.2"))
        await wait_until(lambda: entry.steady is not None and entry.steady[1] > clock[0])
        assert "patch" not in served.cluster.calls
        clock[0] += timedelta(minutes=11)
        await wait_until(lambda: "patch" in served.cluster.calls)
        assert entry.told is Phase.FAILED


async def test_delete_is_answered_while_the_cluster_is_away_and_done_when_it_is_back(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create()
        served.cluster.away = True
        await served.delete(meta)
        await served.delete(meta)
        assert served.cluster.objects
        served.cluster.away = False
        await wait_until(lambda: not served.cluster.objects)


async def test_a_job_that_somebody_deleted_is_confirmed_before_it_is_called_gone(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create()
        key = ("PyTorchJob", NAMESPACE, name_of(meta))
        stored = served.cluster.objects.pop(key)
        served.cluster.relist()
        served.cluster.objects[key] = stored
        await wait_until(lambda: "get" in served.cluster.calls)
        await wait_until(lambda: len(served.orders) == 0)
        assert await served.phase(meta) == "QUEUED"
        del served.cluster.objects[key]
        served.cluster.relist()
        await wait_until(lambda: is_phase(served, meta, "RETRYABLE_FAILED"))


def test_any_server_says_the_same_of_a_job(tmp_path: Path) -> None:
    cluster = ScriptedCluster()
    metas: list[bytes] = []

    async def run_first_server(served: Served) -> None:
        metas.append(await served.create())
        cluster.status(name_of(metas[0]), status("Running"))
        cluster.apply(pod(name_of(metas[0]), "master-0", "Running"))
        cluster.apply(pod(name_of(metas[0]), "worker-0", "Running"))

    async def second(served: Served) -> None:
        assert await served.phase(metas[0]) == "RUNNING"

    async def third(served: Served) -> None:
        await wait_until(lambda: is_phase(served, metas[0], "SUCCEEDED"))

    run_story(run_first_server, tmp_path, cluster=cluster)
    run_story(second, tmp_path, cluster=cluster)
    cluster.objects.clear()
    folder = tmp_path / "f1" / "n0" / "data" / "0"
    folder.mkdir(parents=True)
    (folder / "outputs.pb").write_bytes(b"")
    run_story(third, tmp_path, cluster=cluster)


async def test_the_last_log_lines_of_replicas_are_returned(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create()
        name = name_of(meta)
        served.cluster.apply(pod(name, "worker-0", "Running"))
        served.cluster.lines[f"{name}-worker-0"] = ["a", "b", "c"]
        ask = served.channel.unary_stream(
            "/flyteidl.service.AsyncAgentService/GetTaskLogs",
            request_serializer=admin.GetTaskLogsRequest.SerializeToString,
            response_deserializer=admin.GetTaskLogsResponse.FromString,
        )
        request = admin.GetTaskLogsRequest(resource_meta=meta, lines=2)
        told = [line async for each in ask(request) for line in each.body.results]
        assert told == ["worker-0: b", "worker-0: c"]


async def test_propeller_is_told_which_tasks_are_taken(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        ask = served.channel.unary_unary(
            "/flyteidl.service.AgentMetadataService/ListAgents",
            request_serializer=admin.ListAgentsRequest.SerializeToString,
            response_deserializer=admin.ListAgentsResponse.FromString,
        )
        (agent,) = (await ask(admin.ListAgentsRequest())).agents
        assert [(each.name, each.version) for each in agent.supported_task_categories] == [
            ("pytorch", 0),
            ("pytorch", 1),
        ]
        assert not agent.is_sync


async def test_a_job_that_is_made_while_it_is_looked_for_is_there(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        meta = await served.create()
        key = ("PyTorchJob", NAMESPACE, name_of(meta))
        stored = served.cluster.objects.pop(key)
        for entry in served.cache:
            served.cache.forget(entry)
        served.cluster.slow.clear()
        assert await served.phase(meta) == "QUEUED"
        await wait_until(lambda: "get" in served.cluster.calls)
        served.cache.put_record(NAMESPACE, read_job(stored))
        served.cluster.slow.set()
        await wait_until(lambda: len(served.orders) == 0)
        assert await served.phase(meta) == "QUEUED"


@pytest.mark.parametrize("how", ["made", "adopted", "looked for", "confirmed"])
async def test_what_a_watch_has_told_is_not_undone_by_an_answer_that_comes_late(
    tmp_path: Path, how: str
) -> None:
    async with ready_server(tmp_path) as served:
        cluster = served.cluster
        meta = b"" if how == "made" else await served.create()
        if how == "looked for":
            for entry in served.cache:
                served.cache.forget(entry)
        cluster.calls.clear()
        cluster.late.clear()
        asked = None
        if how in ("made", "adopted"):
            asked = asyncio.create_task(served.create())
        elif how == "looked for":
            await served.get(meta)
        else:
            cluster.objects, kept = {}, cluster.objects
            cluster.relist()
            cluster.objects = kept
        await wait_until(lambda: ("create" if how == "made" else "get") in cluster.calls)
        ((_, _, name),) = cluster.objects
        served.leave("outputs.pb")
        cluster.status(name, status("Running", "Succeeded"))
        cluster.late.set()
        meta = await asked if asked else meta
        await wait_until(lambda: len(served.orders) == 0)
        assert await served.phase(meta) == "SUCCEEDED"


async def test_a_job_that_went_before_its_making_was_answered_is_gone(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        served.cluster.late.clear()
        making = asyncio.create_task(served.create())
        await wait_until(lambda: len(served.cluster.objects) == 1)
        served.cluster.remove(*next(iter(served.cluster.objects)))
        served.cluster.late.set()
        meta = await making
        await wait_until(lambda: is_phase(served, meta, "RETRYABLE_FAILED"))
