"""Background operations at the end of the server, reconciliations, and deletions that take long."""

import asyncio
import logging

import grpc
import pytest
from scripted_cluster import ScriptedCluster, ago
from serving import NAMESPACE, name_of, ready_server, serving, status
from tiny_service import code_of, wait_until

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.shell import background_operations, job_deleter
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import NotDurable, ObjectName
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.reconciliation_queue import DELAY_SECONDS, ReconciliationQueue

NAME = ObjectName(namespace="ns", name="j")


def build_cluster():
    cluster = ScriptedCluster()
    cluster.apply({"kind": "PyTorchJob", "metadata": {"namespace": "ns", "name": "j"}})
    return cluster


def test_deletion_interrupted_by_the_end_of_its_loop_is_completed():
    cluster = build_cluster()
    orders, begun = BackgroundOperations(Metrics()), asyncio.Event()

    async def life():
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.3, setattr, cluster, "away", False)
            await orders.resubmit_deletions(20)

    async def hosted():
        """Return while tasks are running, as flytekit's server does: `asyncio.run` cancels all of them."""
        cluster.away = True
        tasks.add(asyncio.create_task(life()))
        await begun.wait()
        orders.submit(("delete_job", NAME), lambda: cluster.delete(NAME), {})
        orders.submit(("fetch_job", NAME), lambda: cluster.watch(None), {})  # type: ignore[arg-type]
        await wait_until(lambda: "delete" in cluster.calls)

    tasks = set()
    asyncio.run(hosted())
    assert (cluster.objects, len(orders)) == ({}, 0)


async def test_drain_retries_an_operation_in_backoff_immediately(monkeypatch):
    monkeypatch.setattr(background_operations, "FIRST_PAUSE", 600.0)  # Longer than the test.
    cluster = build_cluster()
    orders = BackgroundOperations(Metrics())
    cluster.away = True
    orders.submit(("delete_job", NAME), lambda: cluster.delete(NAME), {})
    await wait_until(lambda: "delete" in cluster.calls)
    cluster.away = False
    await orders.drain(60)
    assert cluster.objects == {}


async def test_cancelled_drain_cancels_the_operations():
    orders = BackgroundOperations(Metrics())
    orders.submit(("delete_job", NAME), asyncio.Event().wait, {})  # type: ignore[arg-type]
    settling = asyncio.create_task(orders.drain(60, 60))
    await asyncio.sleep(0.1)
    settling.cancel()
    await asyncio.wait([settling], timeout=50)
    assert len(orders) == 0


async def test_drain_waits_for_an_operation_that_was_cancelled_before():
    ended = []

    async def clean_up_slowly():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            ended.append(True)

    orders = BackgroundOperations(Metrics())
    orders.submit(("read_outputs", NAME), clean_up_slowly, {})
    await asyncio.sleep(0.01)
    orders.cancel(("read_outputs", NAME))
    await orders.drain(0.1)
    assert ended == [True]


FIRST, SECOND = CachedJob("ns", "first"), CachedJob("ns", "second")


async def test_ended_reconciler_checks_no_job(tmp_path):
    async with ready_server(tmp_path) as served:
        name = served.run(await served.create())
        (entry,) = served.cache
        await wait_until(lambda: entry.logged_phase is Phase.RUNNING)
    served.cluster.status(name, status("Running", "Succeeded"))
    served.cache.put_record(NAMESPACE, read_job(served.cluster.objects["PyTorchJob", NAMESPACE, name]))
    served.tasks.reconciler.enqueue(entry)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert entry.logged_phase is Phase.RUNNING


async def test_job_that_is_due_several_times_is_reconciled_once():
    reconciled = []
    queue = ReconciliationQueue(reconciled.append)
    for entry in (FIRST, SECOND, FIRST):
        queue.add(entry)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert sorted(each.name for each in reconciled) == ["first", "second"]
    queue.add(FIRST)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert reconciled[2:] == [FIRST]


WORD = "deleted 0.3 s ago, but still present; its finalizers: example.com/audit, example.com/bill"


class Keeping(ScriptedCluster):
    """A cluster in which every job has finalizers until `let_go` is called."""

    async def delete(self, name, *, awaited=False):
        await self._record_call("delete")
        if (stored := self._find("PyTorchJob", name)) is not None:
            keeps = {"finalizers": ["example.com/audit", "example.com/bill"], "deletionTimestamp": ago(0)}
            self.apply({**stored, "metadata": {**stored["metadata"], **keeps}})

    def let_go(self, name):
        self.remove("PyTorchJob", NAMESPACE, name)


@pytest.fixture
def hasty(monkeypatch):
    """Shorten the delay before a remaining job is reported, and the time of a DeleteTask call."""
    monkeypatch.setattr(job_deleter, "LEAVING", (0.1, 0.2))
    monkeypatch.setattr(job_deleter, "DELETE_CALL", 0.1)


def list_messages(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.WARNING]


async def test_deletion_blocked_by_finalizers_is_logged_once_and_ends_with_the_job(
    tmp_path, caplog, monkeypatch, hasty
):
    monkeypatch.setattr(job_deleter, "DELETE_CALL", 50.0)  # A call that waits for the finalizers is slow.
    cluster = Keeping()
    async with serving(tmp_path, cluster, seconds=1) as served:
        loop = asyncio.get_running_loop()
        meta = await served.create()
        cluster.calls.clear()
        begun = loop.time()
        await served.delete(meta)
        assert loop.time() - begun < 40
        await wait_until(lambda: WORD in list_messages(caplog))
        await asyncio.sleep(1.5)
        assert (cluster.calls, list_messages(caplog)) == (["get", "delete", "get"], [WORD])
        assert served.orders.count_running("await_removal") == 1
        cluster.let_go(name_of(meta))
        await wait_until(lambda: len(served.orders) == 0)
        assert len(cluster.calls) == 3


async def test_recreated_job_is_not_deleted_by_the_earlier_deletion(tmp_path, caplog, hasty):
    cluster = Keeping()
    async with serving(tmp_path, cluster, seconds=1) as served:
        meta = await served.create()
        await served.delete(meta)
        cluster.let_go(name_of(meta))
        again = await served.create()
        assert name_of(again) == name_of(meta)
        cluster.calls.clear()
        await wait_until(lambda: len(served.orders) == 0)
        assert (cluster.calls, [key[2] for key in cluster.objects]) == ([], [name_of(again)])
        assert list_messages(caplog) == []


@pytest.mark.parametrize(("deaf", "asked"), [(False, ["get", "delete"]), (True, ["get", "delete", "get"])])
async def test_request_confirms_a_deletion_only_without_a_watch_event(tmp_path, caplog, hasty, deaf, asked):
    async with serving(tmp_path, seconds=1) as served:
        meta = await served.create()
        served.cluster.calls.clear()
        served.cluster.deaf = deaf
        await served.delete(meta)
        await wait_until(lambda: len(served.orders) == 0)
        assert (served.cluster.calls, list_messages(caplog)) == (asked, [])


class Full(ScriptedCluster):
    """A cluster whose disk is full while `is_full`: a restart forgets what it cannot write."""

    is_full = True

    async def delete(self, name, *, awaited=False):
        if self.is_full:
            self.calls.append("delete")
            raise NotDurable("the cluster's state cannot be written: database or disk is full")
        await super().delete(name, awaited=awaited)


async def test_deletion_that_a_restart_would_lose_is_not_acknowledged(tmp_path, hasty):
    cluster = Full()
    async with serving(tmp_path, cluster, seconds=1) as served:
        meta = await served.create()
        for _ in "twice":  # Flyte calls again, but there is only one background operation.
            code, details = await code_of(served.delete(meta))
            assert (code, "disk is full" in details) == (grpc.StatusCode.UNAVAILABLE, True)
        assert served.orders.count_running("delete_job") == 1
        cluster.is_full = False
        await wait_until(lambda: not cluster.objects)
        await served.delete(meta)
