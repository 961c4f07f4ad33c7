"""The scheduling loop, which runs `scheduling_cycle` when resources may be free."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_uid, is_ended
from backend_plugin.embedded.options import RETRY_SECONDS
from backend_plugin.embedded.scheduling_cycle import (
    Binding,
    PodInfo,
    Unschedulable,
    read_node_info,
    read_pod_info,
    schedule_pods,
)
from backend_plugin.embedded.store import ObjectChange, Store
from backend_plugin.shell.cluster import ClusterUnavailable

AT_ONCE: Final = 100
"""The number of decisions in one batch. Requests are served between two batches."""


class Scheduler:
    """Schedules all pending pods, in one pass for all changes that arrive together."""

    def __init__(self, store: Store, decide: Callable[[Binding | Unschedulable], None]) -> None:
        self._store = store
        self._decide = decide
        self._waiting: dict[str, PodInfo] = {}
        self._bound: dict[str, PodInfo] = {}
        self._loop = asyncio.get_running_loop()
        self._decisions: Iterator[Binding | Unschedulable] | None = None
        """The remaining decisions of the current pass; None if no pass is active."""
        self._due = False
        """True if another pass is required, because a pod or node has changed since this pass began."""
        self._armed: asyncio.Handle | None = None

    def start(self) -> None:
        """Read all pods and start the first pass. From now on, `on_change` must receive every change."""
        for pod in self._store.list_objects("Pod"):
            self._read_pod(get_uid(pod), pod)
        self._request_cycle()

    def on_change(self, change: ObjectChange) -> None:
        """Update the scheduler's sets of waiting and bound pods after a change; start a pass if necessary."""
        if change.key.kind == "Node":
            self._decisions = None  # They may use a node that has failed.
            self._request_cycle()
        elif change.key.kind == "Pod" and _has_resource_change(change):
            self._update_pod(get_uid(change.manifest), change.new)

    def _update_pod(self, uid: str, pod: Manifest | None) -> None:
        freed = self._bound.pop(uid, None)
        self._waiting.pop(uid, None)
        if pod is not None:
            self._read_pod(uid, pod)
        if freed is not None or uid in self._waiting:
            self._request_cycle()
        elif uid not in self._bound and self._decisions is not None:
            # The pod was deleted before its decision. The pass still reserves resources for it.
            self._due = True

    def close(self) -> None:
        """Stop scheduling."""
        self._waiting.clear()
        self._decisions = None
        if self._armed is not None:
            self._armed.cancel()

    def _read_pod(self, uid: str, pod: Manifest) -> None:
        if not is_ended(pod):
            info = read_pod_info(pod)
            (self._bound if info.node else self._waiting)[uid] = info

    def _request_cycle(self) -> None:
        self._due = True
        self._schedule_cycle()

    def _schedule_cycle(self) -> None:
        if self._armed is None:
            self._armed = self._loop.call_soon(self._run_cycle)

    def _run_cycle(self) -> None:
        self._armed = None
        if self._decisions is None:
            self._due = False
            nodes = [read_node_info(each) for each in self._store.list_objects("Node")]
            # Copy both, because binding a pod changes them during the pass.
            self._decisions = schedule_pods(tuple(self._waiting.values()), tuple(self._bound.values()), nodes)
        try:
            for _ in range(AT_ONCE):
                self._apply_next_decision()
        except ClusterUnavailable:
            self._decisions = None
            self._armed = self._loop.call_later(RETRY_SECONDS, self._run_cycle)
            return
        if self._decisions is not None or (self._due and self._waiting):
            self._schedule_cycle()

    def _apply_next_decision(self) -> None:
        decision = None if self._decisions is None else next(self._decisions, None)
        if decision is None:
            self._decisions = None
        else:
            self._decide(decision)


def _has_resource_change(change: ObjectChange) -> bool:
    """True if a change can affect the used resources: creation, deletion, a changed spec or the pod's end."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return old.get("spec") is not new.get("spec") or is_ended(old) != is_ended(new)
