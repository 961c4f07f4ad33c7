"""The node controller: fails, drains and restores nodes, and updates the pods on them."""

import asyncio
from collections.abc import Sequence
from typing import Final

from backend_plugin.core.errors import Refused
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import node_states, pod_states
from backend_plugin.embedded.events import NODE_CONTROLLER, TAINT_CONTROLLER, Recorder, Saying
from backend_plugin.embedded.objects import (
    Key,
    is_ended,
    is_terminating,
    key_of,
    name_of,
    node_of,
    uid_of,
)
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.pods import Pods
from backend_plugin.embedded.store import Change, Clock, Store
from backend_plugin.shell.cluster import Unavailable

_NOT_FOUND: Final = 404
_AGAIN: Final = 1.0
"""Seconds before a failed write to the store is retried."""


class Nodes:
    """Manages the nodes of a cluster. Their state is durable."""

    def __init__(
        self, store: Store, pods: Pods, recorder: Recorder, *, options: EmbeddedOptions, clock: Clock
    ) -> None:
        self._store = store
        self._pods = pods
        self._recorder = recorder
        self._options = options
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def ensure(self, wanted: Sequence[Manifest]) -> None:
        """Create or update these nodes. Remove other nodes without pods, and cordon other nodes with pods."""
        for node in wanted:
            old = self._store.get(key_of(node))
            if old is None:
                self._store.create(node)
            else:
                self._store.update(node_states.remade(old, node))
        names = {name_of(node) for node in wanted}
        for node in self._store.all("Node"):
            if name_of(node) not in names:
                self._dismiss(node)

    def all(self) -> Sequence[Manifest]:
        """Return all nodes as core/v1 objects."""
        return self._store.all("Node")

    def lose(self, name: str) -> None:
        """Make a node unreachable: kill its processes, and fail its pods after `options.lost_after`."""
        node = self._node(name)
        if node_states.is_lost(node):
            return
        self._store.update(node_states.lost(node, self._clock()))
        self._cut_off(name)

    def drain(self, name: str) -> None:
        """Cordon a node and evict its pods, each with its grace period."""
        self._store.update(node_states.cordoned(self._node(name)))
        for pod in self._on(name):
            if not is_terminating(pod):
                self._pods.evict(pod)

    def restore(self, name: str) -> None:
        """Make a node ready and schedulable again."""
        self._store.update(node_states.restored(self._node(name), self._clock()))

    def begin(self) -> None:
        """Resume the pending work of an earlier server for pods on unreachable or missing nodes."""
        for node in self._store.all("Node"):
            if node_states.is_lost(node):
                self._cut_off(name_of(node))
        for pod in self._store.all("Pod"):
            if node_of(pod) and not is_ended(pod) and self._store.get(Key("Node", "", node_of(pod))) is None:
                self._look_after(pod)

    def see(self, change: Change) -> None:
        """Check the node of a new pod that was created with a node name."""
        if change.key.kind == "Pod" and change.old is None and change.new is not None and node_of(change.new):
            self._look_after(change.new)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()

    def _node(self, name: str) -> Manifest:
        node = self._store.get(Key("Node", "", name))
        if node is None:
            raise Refused(_NOT_FOUND, "NotFound", f'nodes "{name}" not found')
        return node

    def _on(self, name: str) -> list[Manifest]:
        """Return the pods on a node that have not ended."""
        return [pod for pod in self._store.all("Pod") if node_of(pod) == name and not is_ended(pod)]

    def _dismiss(self, node: Manifest) -> None:
        if self._on(name_of(node)):
            self._store.update(node_states.dismissed(node))
        else:
            self._store.remove(uid_of(node))

    def _cut_off(self, name: str) -> None:
        pods = self._on(name)
        self._pods.cut_off(pods)
        self._arm(name, pods, self._options.lost_after)
        for pod in pods:
            self._store.update(pod_states.unready(pod, self._clock()))
            said = Saying(
                reason="NodeNotReady", message="Node is not ready", component=NODE_CONTROLLER, warning=True
            )
            self._recorder.say(pod, said)

    def _look_after(self, pod: Manifest) -> None:
        """Set a timer if the node of the pod is unreachable or missing, because no kubelet takes the pod."""
        node, uid = self._store.get(Key("Node", "", node_of(pod))), uid_of(pod)
        if node is None:
            self._timers[uid] = self._loop.call_later(self._options.orphaned_after, self._collect, uid)
        elif node_states.is_lost(node):
            self._arm(uid, [pod], self._options.lost_after)

    def _collect(self, uid: str) -> None:
        del self._timers[uid]
        pod = self._store.by_uid(uid)
        if pod is None:
            return
        try:
            self._pods.remove(self._store.update(pod_states.orphaned(pod, self._clock())))
        except Unavailable:
            self._timers[uid] = self._loop.call_later(_AGAIN, self._collect, uid)

    def _arm(self, name: str, pods: Sequence[Manifest], seconds: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        uids = [uid_of(pod) for pod in pods]
        self._timers[name] = self._loop.call_later(seconds, self._give_up, name, uids)

    def _give_up(self, name: str, uids: Sequence[str]) -> None:
        # Fail the pods even if the node is ready again: their processes were killed.
        del self._timers[name]
        pods = [pod for uid in uids if (pod := self._store.by_uid(uid)) is not None and not is_ended(pod)]
        try:
            for pod in pods:
                self._lose(pod)
        except Unavailable:
            self._arm(name, pods, _AGAIN)

    def _lose(self, pod: Manifest) -> None:
        if is_terminating(pod):
            self._pods.remove(pod)
            return
        key = key_of(pod)
        said = f"Marking for deletion Pod {key.namespace}/{key.name}"
        self._recorder.say(
            pod, Saying(reason="TaintManagerEviction", message=said, component=TAINT_CONTROLLER)
        )
        self._store.update(pod_states.lost(pod, self._clock()))
