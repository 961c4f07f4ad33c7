"""The scheduling loop: schedules pending pods when resources may be free. The algorithm is in `nodes`."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.nodes import Binding, Claim, Unschedulable, read_claim, read_node, schedule
from backend_plugin.embedded.objects import is_ended, uid_of
from backend_plugin.embedded.store import Change, Store
from backend_plugin.shell.cluster import Unavailable

AT_ONCE: Final = 100
"""The number of decisions in one batch. Requests are served between two batches."""

_AGAIN: Final = 1.0
"""Seconds before the next pass after a failed write to the store."""


class Scheduler:
    """Schedules all pending pods, in one pass for all changes that arrive together."""

    def __init__(self, store: Store, decide: Callable[[Binding | Unschedulable], None]) -> None:
        self._store = store
        self._decide = decide
        self._waiting: dict[str, Claim] = {}
        self._bound: dict[str, Claim] = {}
        self._loop = asyncio.get_running_loop()
        self._decisions: Iterator[Binding | Unschedulable] | None = None
        """The remaining decisions of the current pass; None if no pass is active."""
        self._due = False
        """True if resources may have become free since the pass began."""
        self._armed: asyncio.Handle | None = None

    def begin(self) -> None:
        """Read all pods and start the first pass. From now on, `see` must receive every change."""
        for pod in self._store.all("Pod"):
            self._read(uid_of(pod), pod)
        self._arm()

    def see(self, change: Change) -> None:
        """Update the pods after a change in the store, and start a pass if necessary."""
        if change.key.kind == "Node":
            self._decisions = None  # They may use a node that has failed.
            self._arm()
        elif change.key.kind == "Pod" and _matters(change):
            uid = uid_of(change.last)
            freed, waited = self._bound.pop(uid, None), self._waiting.pop(uid, None)
            if change.new is not None:
                self._read(uid, change.new)
            came = uid in self._bound and waited is None
            if came:
                # The pod names its node, and uses resources that the pass counts as free.
                self._decisions = None
            if came or freed is not None or uid in self._waiting:
                self._arm()
            elif uid not in self._bound and self._decisions is not None:
                # The pod was deleted before its decision. The pass still reserves resources for it.
                self._due = True

    def close(self) -> None:
        """Stop scheduling."""
        self._waiting.clear()
        self._decisions = None
        if self._armed is not None:
            self._armed.cancel()

    def _read(self, uid: str, pod: Manifest) -> None:
        if not is_ended(pod):
            claim = read_claim(pod)
            (self._bound if claim.node else self._waiting)[uid] = claim

    def _arm(self) -> None:
        self._due = True
        self._wake()

    def _wake(self) -> None:
        if self._armed is None:
            self._armed = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._armed = None
        if self._decisions is None:
            self._due = False
            nodes = [read_node(each) for each in self._store.all("Node")]
            # Copy both, because binding a pod changes them during the pass.
            self._decisions = schedule(tuple(self._waiting.values()), tuple(self._bound.values()), nodes)
        try:
            for _ in range(AT_ONCE):
                self._carry_out()
        except Unavailable:
            self._decisions = None
            self._armed = self._loop.call_later(_AGAIN, self._look)
            return
        if self._decisions is not None or (self._due and self._waiting):
            self._wake()

    def _carry_out(self) -> None:
        decision = None if self._decisions is None else next(self._decisions, None)
        if decision is None:
            self._decisions = None
        else:
            self._decide(decision)


def _matters(change: Change) -> bool:
    """True if the resources that a pod uses may have changed. Most changes are of container statuses."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return old.get("spec") is not new.get("spec") or is_ended(old) != is_ended(new)
