"""Every replica runs once and every job ends, although servers are killed at any moment."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.embedded.emulated import job, opened, role

JOBS = 4
WORKERS = 2
SERVER = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from e2e.embedded.test_cluster_killed import finish

asyncio.run(finish(Path(sys.argv[1])))
"""


async def finish(directory: Path) -> dict[str, dict[str, bool]]:
    """Create all missing jobs, and return the final conditions of all jobs."""
    async with opened(directory / "state", durable=True) as (cluster, recorded):
        for name in names():
            # The master waits for its workers, because workers cannot start after its name is removed.
            waits = f"while ! [ -e {directory}/{name}-{WORKERS}.end ]; do sleep 0.02; done"
            master, worker = (
                role(f"{waits}; {counts(directory, name)}"),
                role(counts(directory, name), WORKERS),
            )
            if recorded.job(name) is None:
                await cluster.create(job(name, Master=master, Worker=worker))
        await recorded.wait_until(lambda: all(is_finished(recorded.states(name)) for name in names()))
        return {name: recorded.states(name) for name in names()}


def names() -> list[str]:
    return [f"j{number}" for number in range(JOBS)]


def counts(directory: Path, name: str) -> str:
    # Staggered, so that the last worker ends last.
    me = f"{directory}/{name}-$RANK"
    return f"echo once >> {me}.runs; sleep 0.$RANK; echo end >> {me}.end"


def is_finished(states: dict[str, bool]) -> bool:
    return bool(states.get("Succeeded") or states.get("Failed"))


def kill_and_finish(directory: Path, kills: int) -> None:
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", SERVER, directory]) as server:
            time.sleep(moments.uniform(0.2, 1.2))
            server.kill()
    ends = asyncio.run(finish(directory))
    runs = {each.stem: each.read_text().split() for each in directory.glob("*.runs")}
    assert runs == {f"{name}-{rank}": ["once"] for name in names() for rank in range(WORKERS + 1)}, seed
    assert {name: states.get("Succeeded") for name, states in ends.items()} == dict.fromkeys(names(), True), (
        seed
    )


def test_killed_servers_start_each_replica_once_and_finish_each_job(tmp_path):
    kill_and_finish(tmp_path, kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(20))
def test_frequently_killed_servers_start_each_replica_once(tmp_path, round_):
    kill_and_finish(tmp_path, kills=10)
