"""Changes between two batches of scheduling decisions."""

import asyncio
from contextlib import closing

from kept_objects import Clock, container, node, pod

from backend_plugin.embedded import pod_transitions
from backend_plugin.embedded.objects import get_node_name, get_uid
from backend_plugin.embedded.scheduler import AT_ONCE, Scheduler
from backend_plugin.embedded.scheduling_cycle import Binding
from backend_plugin.embedded.store import Store


async def test_resources_of_a_pod_deleted_while_pending_go_to_the_next_pod(tmp_path):
    clock = Clock()
    with closing(Store.open(tmp_path / "state", clock)) as store:

        def decide(decision):
            waits = store.get_by_uid(decision.uid)
            if waits is not None and isinstance(decision, Binding):
                store.update(pod_transitions.bind(waits, decision, clock()))

        store.create(node("n"))
        for number in range(AT_ONCE):
            store.create(pod(f"large-{number}", container(cpu="5")))
        first, second = (store.create(pod(name, container(cpu="4"))) for name in ("first", "second"))
        scheduler = Scheduler(store, decide)
        store.watch(scheduler.on_change)
        scheduler.start()
        await asyncio.sleep(0)
        store.remove(get_uid(first))
        for _ in range(5):
            await asyncio.sleep(0)
        scheduler.close()
        result = get_node_name(store.get_by_uid(get_uid(second)))
    assert result == "n"
