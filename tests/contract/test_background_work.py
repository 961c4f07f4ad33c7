"""Background operations that are pending when the server or its event loop ends."""

import asyncio
from pathlib import Path

import pytest
from scripted_cluster import ScriptedCluster
from serving import NAMESPACE, ready_server, status
from tiny_service import wait_until

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.shell import background_operations
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.cluster import ObjectName
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.reconciliation_queue import DELAY_SECONDS, ReconciliationQueue

NAME = ObjectName(namespace="ns", name="j")


def build_cluster() -> ScriptedCluster:
    cluster = ScriptedCluster()
    cluster.apply({"kind": "PyTorchJob", "metadata": {"namespace": "ns", "name": "j"}})
    return cluster


def test_deletion_interrupted_by_the_end_of_its_loop_is_completed() -> None:
    cluster = build_cluster()
    orders, begun = BackgroundOperations(Metrics()), asyncio.Event()

    async def life() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.3, setattr, cluster, "away", False)
            await orders.resubmit_deletions(20)

    async def hosted() -> None:
        """Return while tasks are running, as flytekit's server does: `asyncio.run` cancels all of them."""
        cluster.away = True
        tasks.add(asyncio.create_task(life()))
        await begun.wait()
        orders.submit(("delete_job", NAME), lambda: cluster.delete(NAME), {})
        orders.submit(("fetch_job", NAME), lambda: cluster.watch(None), {})  # type: ignore[arg-type]
        await wait_until(lambda: "delete" in cluster.calls)

    tasks: set[asyncio.Task[None]] = set()
    asyncio.run(hosted())
    assert cluster.objects == {}
    assert len(orders) == 0


async def test_drain_retries_an_operation_in_backoff_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_operations, "FIRST_PAUSE", 600.0)  # Longer than the test.
    cluster = build_cluster()
    orders = BackgroundOperations(Metrics())
    cluster.away = True
    orders.submit(("delete_job", NAME), lambda: cluster.delete(NAME), {})
    await wait_until(lambda: "delete" in cluster.calls)
    cluster.away = False
    await orders.drain(60)
    assert cluster.objects == {}


async def test_cancelled_drain_cancels_the_operations() -> None:
    orders = BackgroundOperations(Metrics())
    orders.submit(("delete_job", NAME), asyncio.Event().wait, {})  # type: ignore[arg-type]
    settling = asyncio.create_task(orders.drain(60, 60))
    await asyncio.sleep(0.1)
    settling.cancel()
    await asyncio.wait([settling], timeout=50)
    assert len(orders) == 0


async def test_drain_waits_for_an_operation_that_was_cancelled_before() -> None:
    ended = []

    async def clean_up_slowly() -> None:
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


# ---- jobs that are due for reconciliation


FIRST, SECOND = CachedJob("ns", "first"), CachedJob("ns", "second")


async def test_ended_reconciler_checks_no_job(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        name = served.run(await served.create())
        (entry,) = served.cache
        await wait_until(lambda: entry.logged_phase is Phase.RUNNING)
    served.cluster.status(name, status("Running", "Succeeded"))
    served.cache.put_record(NAMESPACE, read_job(served.cluster.objects["PyTorchJob", NAMESPACE, name]))
    served.tasks.keeper.enqueue(entry)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert entry.logged_phase is Phase.RUNNING


async def test_job_that_is_due_several_times_is_reconciled_once() -> None:
    reconciled: list[CachedJob] = []
    queue = ReconciliationQueue(reconciled.append)
    queue.add_later(SECOND, 3_600)
    queue.add_later(SECOND, 0)
    for entry in (FIRST, SECOND, FIRST):
        queue.add(entry)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert sorted(each.name for each in reconciled) == ["first", "second"]
    queue.add(FIRST)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert reconciled[2:] == [FIRST]


async def test_closed_queue_reconciles_nothing() -> None:
    reconciled: list[CachedJob] = []
    queue = ReconciliationQueue(lambda entry: (reconciled.append(entry), queue.close()))
    queue.add(FIRST)
    queue.add(SECOND)  # Due in the same moment, so its call is already scheduled when the queue is closed.
    queue.add_later(FIRST, 2 * DELAY_SECONDS)
    await wait_until(lambda: len(reconciled) == 1)
    queue.add(FIRST)
    queue.add_later(SECOND, 0)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert len(reconciled) == 1
