"""The scheduling loop, which runs `scheduling_cycle` when free resources or pending pods may exist."""

import asyncio
from collections.abc import Callable

from backend_plugin.embedded.objects import is_ended
from backend_plugin.embedded.options import RETRY_SECONDS
from backend_plugin.embedded.scheduling_cycle import (
    Binding,
    Unschedulable,
    read_node_info,
    read_pod_info,
    schedule_pods,
)
from backend_plugin.embedded.store import ObjectChange, Store
from backend_plugin.shell.cluster import ClusterUnavailable


class Scheduler:
    """Schedules all pending pods, in one scheduling pass for all changes that arrive together."""

    def __init__(self, store: Store, decide: Callable[[Binding | Unschedulable], None]) -> None:
        self._store = store
        self._decide = decide
        self._loop = asyncio.get_running_loop()
        self._armed: asyncio.Handle | None = None

    def start(self) -> None:
        """Start a scheduling pass. After the first call, `on_change` must receive every store change."""
        if self._armed is None:
            self._armed = self._loop.call_soon(self._run_cycle)

    def on_change(self, change: ObjectChange) -> None:
        """Start a scheduling pass if a node has changed, or if a pod was created, ended or was deleted."""
        old, new, kind = change.old, change.new, change.key.kind
        is_pod_change = kind == "Pod" and (old is None or new is None or is_ended(old) != is_ended(new))
        if kind == "Node" or is_pod_change:
            self.start()

    def close(self) -> None:
        """Stop scheduling."""
        if self._armed is not None:
            self._armed.cancel()

    def _run_cycle(self) -> None:
        self._armed = None
        pods = [read_pod_info(each) for each in self._store.list_objects("Pod") if not is_ended(each)]
        waiting, bound = ([pod for pod in pods if bool(pod.node) is is_bound] for is_bound in (False, True))
        nodes = [read_node_info(each) for each in self._store.list_objects("Node")]
        try:
            for decision in schedule_pods(waiting, bound, nodes):
                self._decide(decision)
        except ClusterUnavailable:
            self._armed = self._loop.call_later(RETRY_SECONDS, self._run_cycle)
