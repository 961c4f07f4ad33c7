"""The job service, called by the real clients over a real channel."""

import asyncio
import inspect
import os
from datetime import timedelta

import pytest
from served_jobs import NAMESPACE, TOKEN, FewNodes, a_job, a_pod, serving_jobs
from tiny_service import wait_until

from backend_plugin import async_client, client
from backend_plugin.shell import server_file


@pytest.fixture
def fresh():
    with serving_jobs() as served:
        yield served


def test_watch_returns_existing_jobs_and_then_changes(fresh):
    fresh.apply(a_job("old-n0-0-a", "Running", "Succeeded"), a_job("f1-n0-0-b", made=1))
    changes = client.watch_jobs(active_only=True, server=fresh.endpoint)
    first = next(changes)
    fresh.apply(a_job("f2-n0-0-c", made=2))
    second = next(changes)
    fresh.succeed("f1-n0-0-b")
    third = next(changes)
    fresh.do(lambda: fresh.cluster.remove("PyTorchJob", NAMESPACE, "f1-n0-0-b"))
    fourth = next(changes)
    changes.close()
    assert [(each.job.name, each.job.verdict.phase) for each in (first, second, third)] == [
        ("f1-n0-0-b", "INITIALIZING"),
        ("f2-n0-0-c", "INITIALIZING"),
        ("f1-n0-0-b", "SUCCEEDED"),
    ]
    assert fourth.gone.name == "f1-n0-0-b"


def test_watch_reports_the_verdict_of_a_deleted_job(fresh):
    fresh.apply(a_job("f1-n0-0-b", "Running"))
    fresh.do(lambda: fresh.cluster.remove("PyTorchJob", NAMESPACE, "f1-n0-0-b"))
    verdicts = [each.job.verdict for each in client.watch_jobs("f1", server=fresh.endpoint)]
    assert client.list_jobs(server=fresh.endpoint) == []
    assert [(each.phase, each.reason) for each in verdicts] == [("RETRYABLE_FAILED", "JobNotFound")]


def test_watch_of_one_job_ends_if_a_later_job_replaces_it(fresh):
    fresh.apply(a_job("f1-n0-0-b", "Running"))
    changes = client.watch_jobs("f1-n0-0-b", server=fresh.endpoint)
    first = next(changes)
    fresh.apply(a_job("f1-n0-0-b", metadata={"uid": "another"}))
    assert (first.job.name, [each.gone.name for each in changes]) == ("f1-n0-0-b", ["f1-n0-0-b"])


def texts(lines):
    return [f"{line.replica} {line.text}" for line in lines]  # type: ignore[attr-defined]


def test_log_lines_of_all_replicas_are_ordered_by_time(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running", workers=2))
    replicas = ("master-0", "worker-0", "worker-1")
    for offset, replica in enumerate(replicas):
        fresh.apply(a_pod("f1-n0-0-a", replica))
        for step in range(1_500):
            fresh.cluster.write(f"f1-n0-0-a-{replica}", step / 100 + offset / 1_000, f"step {step}")
    lines = texts(client.get_job_logs("f1", server=fresh.endpoint))
    assert lines == [f"{replica} step {step}" for step in range(1_500) for replica in replicas]


def test_log_lines_of_a_replica_keep_their_order_if_its_clock_goes_back(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"))
    for second, text in ((5, "a"), (3, "b"), (4, "c")):
        fresh.cluster.write("f1-n0-0-a-worker-0", second, text)
    assert texts(client.get_job_logs("f1", server=fresh.endpoint)) == [f"worker-0 {text}" for text in "abc"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (client.LogOptions(tail=1), ["master-0 m2", "worker-0 w2"]),
        (client.LogOptions(tail=0), []),
        (client.LogOptions(replica="worker-0"), ["worker-0 w1", "worker-0 w2"]),
        (client.LogOptions(rank=0), ["master-0 m1", "master-0 m2"]),
        (client.LogOptions(node=0), ["master-0 m1", "master-0 m2"]),
        (client.LogOptions(node=1, replica="master-0"), []),
        (client.LogOptions(rank=1, tail=1), ["worker-0 w2"]),
        (client.LogOptions(previous=True), ["worker-0 before"]),
    ],
)
def test_log_options_select_the_lines(fresh, wanted, expected):
    fresh.apply(a_job("f1-n0-0-a", "Running"))
    fresh.apply(a_pod("f1-n0-0-a", "master-0"), a_pod("f1-n0-0-a", "worker-0"))
    for number in (1, 2):
        fresh.cluster.write("f1-n0-0-a-master-0", number, f"m{number}")
        fresh.cluster.write("f1-n0-0-a-worker-0", number + 0.5, f"w{number}")
    fresh.cluster.write("f1-n0-0-a-worker-0 (previous)", 0, "before")
    assert texts(client.get_job_logs("f1", wanted, server=fresh.endpoint)) == expected


def test_rank_of_an_elastic_job_is_recognized_by_its_line_prefix(fresh):
    elastic = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 2}, "nprocPerNode": "2"}
    fresh.apply(a_job("f1-n0-0-a", "Running", **elastic))
    fresh.apply(a_pod("f1-n0-0-a", "master-0"), a_pod("f1-n0-0-a", "worker-0"))
    for place, text in enumerate(("[r2] a", "[r3] b", "of the agent itself", "[r2] c")):
        fresh.cluster.write("f1-n0-0-a-worker-0", place, text)
    lines = texts(client.get_job_logs("f1", client.LogOptions(rank=2), server=fresh.endpoint))
    assert lines == ["worker-0 [r2] a", "worker-0 [r2] c"]


def test_follow_includes_new_replicas_until_the_job_has_ended(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"))
    fresh.cluster.write("f1-n0-0-a-worker-0", 1, "first")
    lines = client.get_job_logs("f1", client.LogOptions(follow=True), server=fresh.endpoint)
    received = [next(lines).text]
    fresh.cluster.write("f1-n0-0-a-worker-0", 2, "second")
    received.append(next(lines).text)
    fresh.apply(a_pod("f1-n0-0-a", "master-0"))
    fresh.cluster.write("f1-n0-0-a-master-0", 3, "third")
    received.append(next(lines).text)
    fresh.cluster.ended = {"f1-n0-0-a-worker-0", "f1-n0-0-a-master-0"}
    fresh.succeed("f1-n0-0-a")
    assert [*received, *lines] == ["first", "second", "third"]


def test_closed_follow_stream_ends_the_log_reads(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"))
    fresh.cluster.write("f1-n0-0-a-worker-0", 1, "first")
    lines = client.get_job_logs("f1", client.LogOptions(follow=True), server=fresh.endpoint)
    next(lines)
    assert fresh.cluster.reading == 1
    lines.close()
    asyncio.run(wait_until(lambda: fresh.cluster.reading == 0))


def test_long_log_line_is_split_and_a_large_log_is_complete(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"), a_pod("f1-n0-0-a", "master-0"))
    fresh.cluster.write("f1-n0-0-a-worker-0", 1, "x" * 5_000_000)
    fresh.cluster.write("f1-n0-0-a-worker-0", 2, "end")
    for number in range(30):
        fresh.cluster.write("f1-n0-0-a-master-0", 3 + number, "y" * 200_000)
    lines = list(client.get_job_logs("f1", server=fresh.endpoint))
    worker = [line.text for line in lines if line.replica == "worker-0"]
    assert ("".join(worker[:-1]), worker[-1]) == ("x" * 5_000_000, "end")
    assert max(len(line.text) for line in lines) < 1_000_000
    assert sum(len(line.text) for line in lines if line.replica == "master-0") == 6_000_000


def test_interrupted_log_raises_an_error(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"))
    fresh.cluster.write("f1-n0-0-a-worker-0", 1, "first")
    fresh.cluster.torn = True
    with pytest.raises(client.RequestFailed, match="the node does not answer"):
        list(client.get_job_logs("f1", server=fresh.endpoint))


def test_cancelled_job_is_reported_as_failed_to_flyte_permanently(fresh):
    fresh.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"))
    done = client.cancel_job("f1", reason="wrong data", server=fresh.endpoint)
    after = client.get_job("f1", server=fresh.endpoint)
    (event,) = [each for each in after.events if each.kind == "PyTorchJob"]
    policy = fresh.cluster.objects["PyTorchJob", NAMESPACE, "f1-n0-0-a"]["spec"]["runPolicy"]
    assert (done.phase_before, done.already_finished, done.job.verdict) == ("RUNNING", False, after.verdict)
    assert (after.verdict.phase, after.verdict.reason, after.verdict.retry) == ("FAILED", "Cancelled", False)
    assert after.verdict.message == "cancelled by a user, with `kfpytorch cancel`: wrong data"
    assert (event.reason, event.message) == ("Cancelled", after.verdict.message)
    # The pods end, and the operator does not delete them.
    assert (policy.get("activeDeadlineSeconds"), policy["cleanPodPolicy"]) == (None, "None")
    assert fresh.cluster.awaited == ["patch"]


def test_nodes_are_available_by_name_and_only_in_an_embedded_cluster(fresh):
    with pytest.raises(client.RequestFailed, match="only an embedded cluster can list"):
        client.list_nodes(server=fresh.endpoint)
    with serving_jobs(nodes=FewNodes("node-0")) as served, pytest.raises(client.NotFound, match="node-9"):
        client.fail_node("node-9", server=served.endpoint)


def test_token_is_not_sent_to_another_server(tmp_path, monkeypatch):
    monkeypatch.setenv(server_file.STATE, str(tmp_path))
    monkeypatch.delenv(client.TOKEN, raising=False)
    here = server_file.ServerInfo(endpoint="127.0.0.1:1", token=TOKEN, pid=os.getpid())
    server_file.write(tmp_path, here)
    with serving_jobs(token=TOKEN) as served, pytest.raises(client.TokenRejected):
        client.list_jobs(server=served.endpoint)


def test_server_file_is_deleted_only_by_its_own_server(tmp_path):
    old, new = (server_file.ServerInfo(endpoint=f"127.0.0.1:{port}") for port in (1, 2))
    server_file.write(tmp_path, new)
    server_file.delete_if_own(tmp_path, old)
    assert server_file.read(tmp_path) == new
    server_file.delete_if_own(tmp_path, new)
    assert server_file.read(tmp_path) is None


async def test_job_is_watched_read_awaited_and_cancelled(fresh):
    fresh.apply(a_job("f1-n0-0-aaa", "Running"), a_pod("f1-n0-0-aaa", "worker-0"))
    for second in range(3):
        fresh.cluster.write("f1-n0-0-aaa-worker-0", second, f"step {second}")
    server = fresh.endpoint
    changes = async_client.watch_jobs("f1", server=server)
    first = await anext(changes)
    await changes.aclose()
    lines = [line.text async for line in async_client.get_job_logs("f1", server=server)]
    with pytest.raises(async_client.NotEnded, match=r"within 2 s; its phase is RUNNING"):
        await async_client.wait_for_job("f1", timeout=timedelta(seconds=2), server=server)
    waiting = asyncio.create_task(async_client.wait_for_job("f1", server=server))
    await asyncio.sleep(0.3)
    cancelled = await async_client.cancel_job("f1", reason="enough", server=server)
    ended = await waiting
    assert (first.job.name, lines) == ("f1-n0-0-aaa", ["step 0", "step 1", "step 2"])
    assert (cancelled.phase_before, cancelled.job.verdict.phase) == ("RUNNING", "FAILED")
    assert (ended.verdict.phase, ended.verdict.reason) == ("FAILED", "Cancelled")


async def test_errors_match_those_of_the_synchronous_client():
    with serving_jobs(token=TOKEN) as served:
        given = client.Server(address=served.endpoint, token=TOKEN)
        with pytest.raises(client.NotFound, match="there is no job f9"):
            await async_client.get_job("f9", server=given)
        with pytest.raises(client.TokenRejected):
            await async_client.list_jobs(server=served.endpoint)
    with pytest.raises(client.ServerNotFound):
        await async_client.list_runtimes(server=given)


@pytest.mark.parametrize("name", [each for each in async_client.__all__ if each[0].islower()])
def test_both_clients_have_the_same_arguments(name):
    ours, theirs = (inspect.signature(getattr(module, name)) for module in (async_client, client))
    assert ours.parameters == theirs.parameters
