"""What was ordered, and the loop that it was ordered in ends."""

import asyncio

from scripted_cluster import ScriptedCluster

from backend_plugin.shell.cluster import Name
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.orders import Orders

NAME = Name(namespace="ns", name="j")


def test_a_deletion_that_the_end_of_a_loop_interrupts_is_made_before_it_ends() -> None:
    cluster = ScriptedCluster()
    cluster.put({"kind": "PyTorchJob", "metadata": {"namespace": "ns", "name": "j"}})
    orders, begun = Orders(Metrics()), asyncio.Event()

    async def life() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.3, setattr, cluster, "away", False)
            await orders.finish("delete", 20)

    async def hosted() -> None:
        """Ends while its tasks go on, as flytekit's server does: `asyncio.run` cancels all of them."""
        cluster.away = True
        tasks.add(asyncio.create_task(life()))
        await begun.wait()
        orders.give(("delete", NAME), lambda: cluster.delete(NAME), {})
        orders.give(("look", NAME), lambda: cluster.follow(None), {})  # type: ignore[arg-type]
        while "delete" not in cluster.calls:
            await asyncio.sleep(0.01)

    tasks: set[asyncio.Task[None]] = set()
    asyncio.run(hosted())
    assert cluster.objects == {}
    assert len(orders) == 0
