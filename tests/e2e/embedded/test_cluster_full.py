"""A machine without resources or disk space: failed actions and writes are repeated later."""

import resource

import pytest

from e2e.embedded.emulated import job, named, opened, role


async def test_failed_pod_start_is_retried(state, cluster, recorded):
    (state / "pods").rmdir()
    (state / "pods").touch()
    await cluster.create(job(Master=role("exit 0")))
    await recorded.wait_until(lambda: recorded.events("FailedCreatePodSandBox"))
    (state / "pods").unlink()
    (state / "pods").mkdir()
    await recorded.phase("Succeeded", "j-master-0")


class Room:
    """A disk that can reject updates with a restart count. It accepts all other writes."""

    def __init__(self, cluster):
        self.is_there = True
        self.refused = 0
        cluster._store._file.create_function("room", 1, self.look)
        cluster._store._execute(
            "CREATE TEMP TRIGGER room BEFORE UPDATE ON objects BEGIN SELECT room(new.body); END"
        )

    def look(self, body):
        if not self.is_there and b'"restarts"' in body:
            self.refused += 1
            raise OSError


@pytest.mark.parametrize("server", ["goes on", "is another one"])
async def test_recreated_pod_is_counted_once_after_failed_store_writes(state, tmp_path, server):
    command = f"[ -e {tmp_path}/ran ] && exit 0; touch {tmp_path}/ran; exit 130"

    async def count_restarts(cluster, recorded):
        await recorded.state("Succeeded")
        return (await cluster.get(named()))["status"]["replicaStatuses"]["Worker"]["restarts"]

    async with opened(state) as (cluster, recorded):
        room = Room(cluster)
        room.is_there = False
        await cluster.create(job(Worker=role(command, restart_policy="ExitCode")))
        await recorded.wait_until(lambda: room.refused > 1)
        # The failed pod must stay visible, or its restart would not count.
        assert recorded.phases == {"j-worker-0": "Failed"}
        if server == "goes on":
            room.is_there = True
            assert await count_restarts(cluster, recorded) == 1
    async with opened(state) as (cluster, recorded):
        assert await count_restarts(cluster, recorded) == 1


async def test_server_raises_its_open_file_limit(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
    try:
        async with opened(tmp_path):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert soft == hard > 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
