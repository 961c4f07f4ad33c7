"""The gRPC service `kfpytorch_idl.v1.NodeService` for the nodes of an embedded cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.values import Manifest
from backend_plugin.shell import job_encoding
from backend_plugin.shell.cache import Cache
from kfpytorch_idl.v1 import job_service_pb2 as wire


class NodeOperations(Protocol):
    """Lists, fails, drains and restores nodes. Changes raise `RequestRejected` if the node does not exist."""

    def list_nodes(self) -> Sequence[Manifest]:
        """Return the core/v1 manifest of every node."""

    def fail_node(self, node: str) -> None:
        """Kill all processes of a node and make it unreachable, as a power failure does."""

    def drain_node(self, node: str) -> None:
        """Evict the pods of a node, and accept no new ones."""

    def restore_node(self, node: str) -> None:
        """Let a node accept pods again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeService:
    """The gRPC service ``NodeService``: lists, fails, drains and restores nodes."""

    cache: Cache
    nodes: NodeOperations
    serves: Callable[[str], bool] = lambda _: True
    """Returns True for each namespace with pods that clients may see."""

    async def list_nodes(self, request: wire.ListNodesRequest) -> wire.ListNodesResponse:  # noqa: ARG002
        """Return the nodes of the cluster."""
        return wire.ListNodesResponse(nodes=[self._encode_node(each) for each in self.nodes.list_nodes()])

    async def set_node_state(self, request: wire.SetNodeStateRequest) -> wire.Node:
        """Fail, drain or restore a node, and return it."""
        change = {
            wire.NODE_STATE_NOT_READY: self.nodes.fail_node,
            wire.NODE_STATE_DRAINED: self.nodes.drain_node,
            wire.NODE_STATE_READY: self.nodes.restore_node,
        }.get(request.state)
        if change is None:
            raise RequestRejected(
                HTTPStatus.BAD_REQUEST, "BadRequest", "the state must be NOT_READY, DRAINED or READY"
            )
        change(request.name)
        made = [self._encode_node(each) for each in self.nodes.list_nodes()]
        return next(node for node in made if node.name == request.name)

    def _encode_node(self, manifest: Manifest) -> wire.Node:
        visible = [entry for entry in self.cache if self.serves(entry.namespace)]
        pods = [(entry.namespace, pod) for entry in visible for pod in entry.pods]
        return job_encoding.encode_node(manifest, pods)
