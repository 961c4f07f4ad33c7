"""The functions of `client` for the nodes of an embedded cluster."""

from backend_plugin import client_calls as calls
from backend_plugin.channel_calls import send
from backend_plugin.client_calls import Answer, Call
from backend_plugin.request_errors import MethodNotFound, RequestFailed
from backend_plugin.server_address import Address
from kfpytorch_idl.v1 import job_service_pb2 as wire


def list_nodes(*, server: Address = None) -> list[wire.Node]:
    """Return the nodes of an embedded cluster."""
    return list(_send_to_nodes(calls.list_nodes(), server).nodes)


def fail_node(name: str, *, server: Address = None) -> wire.Node:
    """Kill all processes of a node, as in a power failure."""
    return _set_node_state(name, wire.NODE_STATE_NOT_READY, server)


def drain_node(name: str, *, server: Address = None) -> wire.Node:
    """Mark a node as unschedulable, and evict its pods."""
    return _set_node_state(name, wire.NODE_STATE_DRAINED, server)


def restore_node(name: str, *, server: Address = None) -> wire.Node:
    """Make a failed or drained node schedulable again."""
    return _set_node_state(name, wire.NODE_STATE_READY, server)


def _set_node_state(name: str, state: "wire.NodeState", server: Address) -> wire.Node:
    return _send_to_nodes(calls.set_node_state(name, state), server)


def _send_to_nodes(call: Call[Answer], server: Address) -> Answer:
    try:
        return send(call, server)
    except MethodNotFound as error:
        raise RequestFailed("only an embedded cluster can list, fail, drain or restore nodes") from error
