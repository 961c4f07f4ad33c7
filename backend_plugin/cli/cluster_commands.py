"""``kfpytorch nodes, runtimes, health``: the nodes and runtimes of the cluster, the health of the server."""

import sys
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import command_io, tables
from backend_plugin.core import printable

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_NODES_HELP: Final = """Print the nodes of an embedded cluster, or let one fail, drain or restore it.

`fail` kills the processes of a node, as a power failure does. `drain` stops the pods of a node in order, and
the node accepts no new pods.

\b
  $ kfpytorch nodes
  $ kfpytorch nodes drain node-1
"""
_RUNTIMES_HELP: Final = """Print the runtimes of Kubeflow Trainer, or the packages in the image of one.

`packages` runs a job with one node of the runtime, prints its version of Python, its packages and the output
of nvidia-smi, and deletes the job.

\b
  $ kfpytorch runtimes list
  $ kfpytorch runtimes packages torch-distributed --namespace flytesnacks-development
"""
_HEALTH_HELP: Final = """\
Check that a server is ready: the exit code is 0 if it is, and 1 if it is not or does not answer.

\b
  $ kfpytorch health
  $ kfpytorch health --service liveness --tls-server-name kfpytorch-backend.kfpytorch.svc
"""
_CHANGES: Final = {"fail": client.fail_node, "drain": client.drain_node, "restore": client.restore_node}
_NODE_HEADER: Final = ("NAME", "STATE", "CPU", "MEMORY", "GPU", "PODS")
_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")
_LIST, _PACKAGES = "list", "packages"
_RUNTIME_HEADER: Final = ("NAME", "KIND", "NAMESPACE", "FRAMEWORK", "NODES", "PROCESSES", "DEVICE", "IMAGE")


@click.command(name="nodes", help=_NODES_HELP)
@click.argument("change", required=False, type=click.Choice([*_CHANGES]), metavar="[fail|drain|restore]")
@click.argument("node", required=False)
@command_io.server_options
@command_io.output_option("table")
def nodes(**options: Any) -> None:
    """Run ``kfpytorch nodes``: print an embedded cluster's nodes, or let one fail, drain or restore it."""
    if options["change"] and not options["node"]:
        raise click.UsageError(f"no node is given; run: kfpytorch nodes {options['change']} NAME")
    server = command_io.read_server(options, options["server"])
    with command_io.exit_on_error():
        if options["change"]:
            found = [_CHANGES[options["change"]](options["node"], server=server)]
        else:
            found = client.list_nodes(server=server)
        command_io.print_messages(found, options["output"], _NODE_HEADER, _format_node, "there are no nodes")


def _format_node(node: "wire.Node") -> tuple[str, ...]:
    state = str(command_io.encode_message(node)["state"])
    has = [node.allocatable.get(name, "-") for name in _RESOURCES]
    return (node.name, state, *has, ", ".join(pod.rpartition("/")[2] for pod in node.pods) or "-")


@click.command(name="runtimes", help=_RUNTIMES_HELP)
@click.argument("action", type=click.Choice([_LIST, _PACKAGES]))
@click.argument("runtime", required=False)
@click.option("--all", "job_runtimes", is_flag=True, help="Also the runtimes of single jobs.")
@command_io.timeout_option("The longest time for `packages`, such as 90s or 15m. Default: 10m.")
@command_io.request_options("table")
def runtimes(**values: Any) -> None:
    """Run ``kfpytorch runtimes``: print the training runtimes, or the packages in the image of one."""
    if (values["action"] == _PACKAGES) != bool(values["runtime"]):
        raise click.UsageError("write `runtimes list`, or `runtimes packages NAME`")
    options = command_io.get_request_options(values)
    with command_io.exit_on_error():
        if values["action"] == _LIST:
            found = client.list_runtimes(job_runtimes=values["job_runtimes"], **options)
            command_io.print_messages(
                found, values["output"], _RUNTIME_HEADER, _format_runtime, "there are no runtimes"
            )
        else:
            report = client.get_runtime_packages(values["runtime"], timeout=values["timeout"], **options)
            command_io.print_message(report, values["output"], _format_packages(report))


def _format_runtime(runtime: "wire.Runtime") -> tuple[str, ...]:
    device = f"{runtime.device_count} {runtime.device}".strip()
    texts = (runtime.namespace, runtime.framework, str(runtime.nodes), runtime.processes_per_node, device)
    return (runtime.name, runtime.kind, *(text or "-" for text in (*texts, runtime.image)))


def _format_packages(report: "wire.RuntimePackages") -> list[str]:
    rows = [(each.name, each.version) for each in report.packages]
    lines = [f"Python {printable.escape(report.python)}", *tables.format_table(("PACKAGE", "VERSION"), rows)]
    return [*lines, *([printable.escape(report.gpus)] if report.gpus else [])]


@click.command(name="health", help=_HEALTH_HELP)
@click.option(
    "--service",
    metavar="NAME",
    default="",
    help="liveness checks only that the server answers. Default: readiness.",
)
@command_io.server_options
def health(**options: Any) -> None:
    """Run ``kfpytorch health``: print the health of the server, and exit with 1 if it is not serving."""
    server = command_io.read_server(options, options["server"])
    with command_io.exit_on_error():
        status = client.check_health(options["service"], server=server)
        command_io.print_line(status)
    sys.exit(0 if status == client.SERVING else 1)
