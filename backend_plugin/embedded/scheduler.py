"""Keeps pods that wait placed: looks again whenever room may have appeared.

Lives here: what is known of pods between two looks. Does not: the choice; see `nodes`.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.nodes import Binding, Claim, Unschedulable, read_claim, read_node, schedule
from backend_plugin.embedded.objects import is_ended, uid_of
from backend_plugin.embedded.store import Change, Store
from backend_plugin.shell.cluster import Unavailable

AT_ONCE: Final = 100
"""Decisions that are made and carried out at once: then whoever asks us something gets an answer."""

_AGAIN: Final = 1.0
"""Seconds until the next look when the store could not be written."""


class Scheduler:
    """Decides on all that waits, once for all changes of one moment."""

    def __init__(self, store: Store, decide: Callable[[Binding | Unschedulable], None]) -> None:
        self._store = store
        self._decide = decide
        self._waiting: dict[str, Claim] = {}
        self._bound: dict[str, Claim] = {}
        self._loop = asyncio.get_running_loop()
        self._decisions: Iterator[Binding | Unschedulable] | None = None
        """What is still to be decided, of what waited when that began."""
        self._due = False
        """Room may have appeared since that was decided."""
        self._armed: asyncio.Handle | None = None

    def begin(self) -> None:
        """Look at every pod; from now on `see` is told of every change."""
        for pod in self._store.all("Pod"):
            self._read(uid_of(pod), pod)
        self._arm()

    def see(self, change: Change) -> None:
        """Something has changed in the store."""
        if change.key.kind == "Node":
            self._decisions = None  # They may be for a node that is lost.
            self._arm()
        elif change.key.kind == "Pod" and _matters(change):
            uid = uid_of(change.last)
            freed, waited = self._bound.pop(uid, None), self._waiting.pop(uid, None)
            if change.new is not None:
                self._read(uid, change.new)
            came = uid in self._bound and waited is None
            if came:
                self._decisions = None  # Its author has chosen its node: it takes room that was free.
            if came or freed is not None or uid in self._waiting:
                self._arm()
            elif uid not in self._bound and self._decisions is not None:
                self._due = True  # It has gone before its turn, and still has room in what is being decided.

    def close(self) -> None:
        """Place nothing any more."""
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
            # They change while they are decided on: a pod that is bound waits no more.
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
    """Whether a pod takes up more or less room than before; most changes are of its containers."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return old.get("spec") is not new.get("spec") or is_ended(old) != is_ended(new)
