"""The node controller: fails, drains and restores nodes, and updates the pods on them."""

import asyncio
from collections.abc import Sequence

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import node_transitions, pod_transitions
from backend_plugin.embedded.events import NODE_CONTROLLER, TAINT_CONTROLLER, EventRecorder
from backend_plugin.embedded.objects import (
    Key,
    build_event_body,
    get_key,
    get_name,
    get_node_name,
    get_uid,
    is_ended,
    is_terminating,
)
from backend_plugin.embedded.options import RETRY_SECONDS, EmbeddedOptions
from backend_plugin.embedded.pods import PodController
from backend_plugin.embedded.store import Store
from backend_plugin.shell.cluster import ClusterUnavailable


class NodeController:
    """Manages the Node objects of a cluster. The store contains them, so they survive server restarts."""

    def __init__(
        self, store: Store, pods: PodController, recorder: EventRecorder, options: EmbeddedOptions
    ) -> None:
        self._store = store
        self._pods = pods
        self._recorder = recorder
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def ensure_nodes(self, nodes: Sequence[Manifest]) -> None:
        """Create or update these nodes. Of the other nodes, cordon those with running pods; remove the rest.

        A cordoned node stays cordoned until `restore_node` is called.
        """
        for node in nodes:
            old = self._store.get(get_key(node))
            if old is None:
                self._store.create(node)
            else:
                self._store.update(node_transitions.merge_state(old, node))
        names = set(map(get_name, nodes))
        for node in self._store.list_objects("Node"):
            if get_name(node) in names:
                continue
            if self._list_running_pods(get_name(node)):
                self._store.update(node_transitions.cordon(node))
            else:
                self._store.remove(get_uid(node))

    def list_nodes(self) -> Sequence[Manifest]:
        """Return all nodes as core/v1 objects."""
        return self._store.list_objects("Node")

    def fail_node(self, name: str) -> None:
        """Make a node unreachable: kill its processes, and fail its pods `lost_after` seconds later."""
        node = self._get_node(name)
        if node_transitions.is_unreachable(node):
            return
        self._store.update(node_transitions.mark_unreachable(node, self._store.clock()))
        self._disconnect_node(name)

    def drain_node(self, name: str) -> None:
        """Cordon a node and evict its pods, each with its grace period."""
        self._store.update(node_transitions.cordon(self._get_node(name)))
        for pod in self._list_running_pods(name):
            if not is_terminating(pod):
                self._pods.evict(pod)

    def restore_node(self, name: str) -> None:
        """Make a node ready and schedulable again."""
        self._store.update(node_transitions.restore(self._get_node(name), self._store.clock()))

    def start(self) -> None:
        """Start to manage the nodes that an earlier server has stored.

        Kill the processes of pods on unreachable nodes, and fail these pods `lost_after` seconds later.
        """
        for node in self._store.list_objects("Node"):
            if node_transitions.is_unreachable(node):
                self._disconnect_node(get_name(node))

    def close(self) -> None:
        """Cancel the timers after which the pods of unreachable nodes fail."""
        for timer in self._timers.values():
            timer.cancel()

    def _get_node(self, name: str) -> Manifest:
        node = self._store.get(Key("Node", "", name))
        if node is None:
            existing = ", ".join(sorted(map(get_name, self._store.list_objects("Node"))))
            raise RequestRejected(404, "NotFound", f'nodes "{name}" not found; the nodes are {existing}')
        return node

    def _list_running_pods(self, name: str) -> list[Manifest]:
        return [
            pod for pod in self._store.list_objects("Pod") if get_node_name(pod) == name and not is_ended(pod)
        ]

    def _disconnect_node(self, name: str) -> None:
        pods = self._list_running_pods(name)
        self._pods.kill_pods(pods)
        self._arm_timer(name, pods, self._options.lost_after)
        for pod in pods:
            self._store.update(pod_transitions.mark_unready(pod, self._store.clock()))
            event = build_event_body(NODE_CONTROLLER, "NodeNotReady", "Node is not ready", warning=True)
            self._recorder.record(pod, event)

    def _arm_timer(self, name: str, pods: Sequence[Manifest], seconds: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        uids = [get_uid(pod) for pod in pods]
        self._timers[name] = self._loop.call_later(seconds, self._fail_pods, name, uids)

    def _fail_pods(self, name: str, uids: Sequence[str]) -> None:
        # Fail the pods even if the node is ready again: their processes were killed.
        del self._timers[name]
        pods = [pod for uid in uids if (pod := self._store.get_by_uid(uid)) is not None and not is_ended(pod)]
        try:
            for pod in pods:
                self._fail_pod(pod)
        except ClusterUnavailable:
            self._arm_timer(name, pods, RETRY_SECONDS)

    def _fail_pod(self, pod: Manifest) -> None:
        if is_terminating(pod):
            self._pods.remove(pod)
            return
        key = get_key(pod)
        message = f"Marking for deletion Pod {key.namespace}/{key.name}"
        self._recorder.record(pod, build_event_body(TAINT_CONTROLLER, "TaintManagerEviction", message))
        self._store.update(pod_transitions.mark_node_lost(pod, self._store.clock()))
