"""A machine without room: what cannot be done or written now is done and written later."""

import asyncio

import pytest

from e2e.embedded.emulated import job, opened, role


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def test_a_pod_that_finds_no_room_starts_when_there_is_some_though_nobody_could_note_it(state):
    async def run():
        async with opened(state) as (cluster, seen):
            (state / "pods").rmdir()
            (state / "pods").touch()
            await cluster.create(job(Master=role("exit 0")))
            await seen.until(lambda: seen.events("FailedCreatePodSandBox"))
            cluster._store._write("PRAGMA query_only = 1")
            await asyncio.sleep(2.5)  # It is tried again, and that it fails cannot be written either.
            cluster._store._write("PRAGMA query_only = 0")
            (state / "pods").unlink()
            (state / "pods").mkdir()
            await seen.phase("Succeeded", "j-master-0")

    asyncio.run(run())
