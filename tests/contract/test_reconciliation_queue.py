"""Jobs that are due for reconciliation, and the end of the reconciler."""

import asyncio
from pathlib import Path

from serving import NAMESPACE, ready_server, status
from tiny_service import wait_until

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.reconciliation_queue import DELAY_SECONDS, ReconciliationQueue

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
