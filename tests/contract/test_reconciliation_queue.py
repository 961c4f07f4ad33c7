"""Jobs that are due for reconciliation, and the end of the reconciler."""

import asyncio
from pathlib import Path
from typing import Any

from serving import is_phase, name_of, pod, ready_server, status, terminated
from tiny_service import wait_until

from backend_plugin.core import cleanup
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.reconciliation_queue import DELAY_SECONDS, ReconciliationQueue

FIRST, SECOND = CachedJob("ns", "first"), CachedJob("ns", "second")


def record_timers() -> list[tuple[float, asyncio.TimerHandle]]:
    """Return a list that receives the delay and the handle of each new timer.

    It replaces a method of the event loop, because asyncio has no list of timers.
    """
    timers: list[tuple[float, asyncio.TimerHandle]] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def record(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append((delay, call_later(delay, *arguments, **options)))
        return timers[-1][1]

    loop.call_later = record  # type: ignore[method-assign]
    return timers


async def test_stopped_reconciler_leaves_no_timers(tmp_path: Path) -> None:
    async with ready_server(tmp_path) as served:
        timers = record_timers()
        meta = await served.create()
        name = name_of(meta)
        served.cluster.apply(pod(name, "master-0", "Succeeded", containerStatuses=terminated(0)))
        served.cluster.status(name, status("Running", "Succeeded"))
        await wait_until(lambda: is_phase(served, meta, "SUCCEEDED"))
        await wait_until(lambda: cleanup.LINGER.total_seconds() in dict(timers))
        # A change just before the stop.
        served.cluster.apply(pod(name, "worker-0", "Pending"))
        assert not timers[-1][1].cancelled()
    # A call that ends after the reconciler.
    for entry in served.cache:
        served.tasks.keeper.enqueue(entry)
    now = asyncio.get_running_loop().time()
    ours = [each for delay, each in timers if delay in (DELAY_SECONDS, cleanup.LINGER.total_seconds())]
    assert [each for each in ours if each.when() > now and not each.cancelled()] == []


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
    timers = record_timers()
    queue.add(FIRST)
    queue.add_later(SECOND, 0)
    await asyncio.sleep(4 * DELAY_SECONDS)
    assert (len(reconciled), [delay for delay, _ in timers if delay in (DELAY_SECONDS, 0)]) == (1, [])
