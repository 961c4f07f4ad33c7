"""Tests of tasks that run and end together, and of streams that leave time for other calls."""

import asyncio
from contextlib import suppress

import pytest

from backend_plugin.shell.job_watch import iter_batches
from backend_plugin.shell.together import run_until_first_exit


async def slow_to_end(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append(name)


async def cancel_after_start(life: "asyncio.Task[None]") -> None:
    """Cancel a group of tasks; none of them remains."""
    await asyncio.sleep(0.01)
    life.cancel()
    await asyncio.wait([life])
    assert life.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_group_waits_for_all_tasks() -> None:
    ended: list[str] = []
    group = run_until_first_exit(slow_to_end(ended, "a"), slow_to_end(ended, "b"))
    await cancel_after_start(asyncio.create_task(group))
    assert sorted(ended) == ["a", "b"]


async def test_first_failure_ends_all_tasks() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until_first_exit(fails(), slow_to_end(ended, "b"))
    assert ended == ["b"]


async def swallow_a_cancellation() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    await cancel_after_start(asyncio.create_task(run_until_first_exit(swallow_a_cancellation())))
    # Both groups cancel again after the same interval, the outer one the inner one, which then still waits.
    group = run_until_first_exit(run_until_first_exit(swallow_a_cancellation()))
    await cancel_after_start(asyncio.create_task(group))


MANY = 200


async def test_streams_of_all_jobs_encode_one_batch_between_other_calls() -> None:
    happened: list[str] = []
    received: list[int] = []

    def encode(number: int) -> int:
        happened.append("told")
        return number

    async def watcher(turn: asyncio.Lock) -> None:
        async for part in iter_batches(turn, range(MANY), encode):
            received.extend(part)

    async def calls() -> None:
        while True:
            happened.append("call")
            await asyncio.sleep(0)

    turn = asyncio.Lock()
    calling = asyncio.create_task(calls())
    await asyncio.gather(*(watcher(turn) for _ in range(8)))
    calling.cancel()
    assert sorted(received) == sorted([*range(MANY)] * 8)
    shares = [len(part.split()) for part in " ".join(happened).split("call")]
    assert max(shares) <= 20
