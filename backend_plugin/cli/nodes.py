"""``kfpytorch nodes``: lists the nodes of an embedded cluster, or fails, drains or restores one."""

from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_HELP: Final = """Print the nodes of an embedded cluster, or let one fail, drain or restore it.

`fail` kills the processes of a node, as a power failure does. `drain` stops the pods of a node in order, and
the node accepts no new pods.

\b
  $ kfpytorch nodes
  $ kfpytorch nodes drain node-1
"""
_CHANGES: Final = {"fail": client.fail_node, "drain": client.drain_node, "restore": client.restore_node}
_HEADER: Final = ("NAME", "STATE", "CPU", "MEMORY", "GPU", "PODS")
_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")


@click.command(name="nodes", help=_HELP)
@click.argument("change", required=False, type=click.Choice([*_CHANGES]), metavar="[fail|drain|restore]")
@click.argument("node", required=False)
@asking.server_options
@asking.output_option("table")
def command(**options: Any) -> None:
    """Run ``kfpytorch nodes``."""
    if options["change"] and not options["node"]:
        raise click.UsageError(f"no node is given; run: kfpytorch nodes {options['change']} NAME")
    server = asking.read_server(options, options["server"])
    with asking.exit_on_error():
        if options["change"]:
            nodes = [_CHANGES[options["change"]](options["node"], server=server)]
        else:
            nodes = client.list_nodes(server=server)
        asking.print_messages(nodes, options["output"], _HEADER, _format_row, "there are no nodes")


def _format_row(node: "wire.Node") -> tuple[str, ...]:
    state = str(asking.encode_message(node)["state"])
    has = [node.allocatable.get(name, "-") for name in _RESOURCES]
    return (node.name, state, *has, ", ".join(pod.rpartition("/")[2] for pod in node.pods) or "-")
