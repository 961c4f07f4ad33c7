"""Tests that streams of many jobs leave time for other calls."""

import asyncio

from backend_plugin.shell.job_watch import iter_batches

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
