"""Keeps pods that wait placed: looks again whenever room may have appeared.

Lives here: what is known of pods between two looks. Does not: the choice; see `nodes`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from backend_plugin.core.values import Manifest
from backend_plugin.embedded.nodes import Binding, Claim, Unschedulable, read_claim, read_node, schedule
from backend_plugin.embedded.objects import is_ended, uid_of
from backend_plugin.embedded.store import Change, Store
from backend_plugin.shell.cluster import Unavailable

AT_ONCE: Final = 100
"""Decisions that are carried out at once: then whoever asks us something gets an answer."""

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
        self._decided: deque[Binding | Unschedulable] = deque()
        """What is still to be carried out."""
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
            self._decided.clear()  # What was decided may be for a node that is lost.
            self._arm()
        elif change.key.kind == "Pod" and _matters(change):
            freed = self._bound.pop(uid_of(change.last), None)
            self._waiting.pop(uid_of(change.last), None)
            if change.new is not None:
                self._read(uid_of(change.new), change.new)
            if freed is not None or uid_of(change.last) in self._waiting:
                self._arm()

    def close(self) -> None:
        """Place nothing any more."""
        self._waiting.clear()
        self._decided.clear()
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
        if not self._decided:
            self._due = False
            nodes = [read_node(each) for each in self._store.all("Node")]
            # They change while they are decided on: a pod that is bound waits no more.
            waiting, bound = tuple(self._waiting.values()), tuple(self._bound.values())
            self._decided.extend(schedule(waiting, bound, nodes) if waiting else ())
        try:
            for _ in range(AT_ONCE):
                if not self._decided:
                    break
                self._decide(self._decided.popleft())
        except Unavailable:
            self._decided.clear()
            self._armed = self._loop.call_later(_AGAIN, self._look)
            return
        if self._decided or (self._due and self._waiting):
            self._wake()


def _matters(change: Change) -> bool:
    """Whether a pod takes up more or less room than before; most changes are of its containers."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return old.get("spec") is not new.get("spec") or is_ended(old) != is_ended(new)
