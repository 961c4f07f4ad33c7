"""Gangs with simulators of Volcano and KAI, which cannot be run in tests."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import kai_simulator
import pytest
import simulated
import volcano_simulator
from kai_simulator import Kai
from kube_server import KubeServer, served
from kube_world import opened, options
from serving import NAMESPACE, Served, serving, wait_until
from volcano_simulator import Volcano

Step = Callable[[Any], None]
Story = Callable[[Served], Awaitable[None]]


@pytest.fixture
def server():
    with served() as server:
        server.groups[volcano_simulator.API] = {"podgroups": "v1beta1"}
        server.groups[kai_simulator.API] = {"podgroups": "v2alpha2"}
        server.objects.namespaces[NAMESPACE] = "Active"
        yield server


def run_story(server: KubeServer, folder: Path, gang: dict[str, str], story: Story) -> None:
    async def run() -> None:
        async with (
            opened(options(server, folder, patience=1.0)) as cluster,
            serving(folder, cluster, {"kfpytorch": {"gang": gang}}) as here,  # type: ignore[arg-type]
        ):
            await wait_until(here.cache.ready.is_set)
            await story(here)

    asyncio.run(run())


async def wait_for_message(here: Served, server: KubeServer, meta: bytes, step: Step, begin: str) -> str:
    """Advance the cluster until the message of a job starts with `begin`; return the message."""

    async def run() -> str:
        server.do(simulated.operate)
        server.do(step)
        return (await here.get(meta)).message.partition("\n")[0]

    async def is_told() -> bool:
        return (await run()).startswith(begin)

    await wait_until(is_told, seconds=30)
    return await run()


VOLCANO = {"scheduler": "volcano", "pod-groups-by": "backend", "queue": "team"}


def test_volcano_lets_one_gang_in_and_the_other_says_what_it_waits_for(server, tmp_path):
    volcano = Volcano(free={"cpu": "100"}, queues={"team": {"cpu": "8"}})
    server.do(lambda objects: setattr(objects, "admit", volcano.admit))

    async def story(here: Served) -> None:
        first = await here.create(workers=4)
        assert await wait_for_message(here, server, first, volcano.step, "5 of 5") == "5 of 5 replicas ready"
        second = await here.create(workers=4, execution="f2")
        line = await wait_for_message(here, server, second, volcano.step, "waiting for cpu")
        assert line == "waiting for cpu in queue team: 5 requested (0 of 5 replicas ready)"
        assert await here.phase(second) == "WAITING_FOR_RESOURCES"
        await here.delete(first)
        groups = [
            key
            for key, _ in server.do(
                lambda objects: simulated.list_objects(objects, "podgroups", volcano_simulator.API)
            )
        ]
        oldest = min(groups, key=lambda key: key[3])
        await asyncio.sleep(0.1)
        server.do(lambda objects: objects.now.pop(oldest, None))
        assert await wait_for_message(here, server, second, volcano.step, "5 of 5") == "5 of 5 replicas ready"

    run_story(server, tmp_path, VOLCANO, story)


def test_volcano_says_when_the_cluster_is_full(server, tmp_path):
    volcano = Volcano(free={"cpu": "4"}, queues={"team": {}})

    async def story(here: Served) -> None:
        meta = await here.create(workers=4)
        line = await wait_for_message(here, server, meta, volcano.step, "waiting for cpu")
        assert line == "waiting for cpu in queue team: 5 requested (0 of 5 replicas ready)"

    run_story(server, tmp_path, VOLCANO, story)


@pytest.mark.parametrize(
    ("closed", "why"), [(set(), "unable to find queue: team"), ({"team"}, "with state `Open`")]
)
def test_a_queue_that_volcano_has_not_or_has_closed_fails_a_job_at_once(server, tmp_path, closed, why):
    volcano = Volcano(free={}, queues={each: {} for each in closed}, closed=closed)
    server.do(lambda objects: setattr(objects, "admit", volcano.admit))

    async def story(here: Served) -> None:
        resource = await here.get(await here.create(workers=4))
        assert why in resource.message

    run_story(server, tmp_path, VOLCANO, story)


KAI = {"scheduler": "kai", "queue": "team"}


def test_kai_says_in_numbers_what_a_queue_gives(server, tmp_path):
    kai = Kai(queues={"team": "8"})

    async def story(here: Served) -> None:
        first = await here.create(workers=4)
        assert await wait_for_message(here, server, first, kai.step, "5 of 5") == "5 of 5 replicas ready"
        second = await here.create(workers=4, execution="f2")
        line = await wait_for_message(here, server, second, kai.step, "waiting for")
        assert line == "waiting for 2 cpu in queue team: 5 requested, 3 free (0 of 5 replicas ready)"
        kai.queues["team"] = "-1"
        assert await wait_for_message(here, server, second, kai.step, "5 of 5") == "5 of 5 replicas ready"

    run_story(server, tmp_path, KAI, story)


def test_a_queue_that_kai_has_not_is_said(server, tmp_path):
    kai = Kai(queues={})

    async def story(here: Served) -> None:
        meta = await here.create(workers=1)
        line = await wait_for_message(here, server, meta, kai.step, "queue team")
        assert line == "queue team: Queue team does not exist (0 of 2 replicas ready)"

    run_story(server, tmp_path, KAI, story)


def test_a_gang_that_kai_takes_back_as_a_whole_runs_on_for_flyte_and_waits_for_people(server, tmp_path):
    kai = Kai(queues={"team": "5"}, stale=0.3)

    async def story(here: Served) -> None:
        meta = await here.create(workers=4)
        await wait_for_message(here, server, meta, kai.step, "5 of 5")
        # Times are whole seconds: a pod of the first second does not count as a replacement.
        await asyncio.sleep(1.1)
        kai.queues["team"] = "0"

        def lose(objects: Any) -> None:
            objects.remove(
                next(key for key in objects.now if key[1] == "pods" and key[3].endswith("-worker-3"))
            )

        server.do(lose)
        # The deletions of the pods arrive one by one.
        line = "queue team: it requests 5 cpu, and the limit of its queue is 0 (0 of 5 replicas ready)"
        assert await wait_for_message(here, server, meta, kai.step, line) == line
        assert await here.phase(meta) == "RUNNING"

    run_story(server, tmp_path, KAI, story)
