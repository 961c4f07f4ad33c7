"""``kfpytorch runtimes``: lists the training runtimes of Kubeflow Trainer, or the packages in one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, job_table, json_lines, tables
from backend_plugin.core import printable

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_HELP: Final = """Print the runtimes of Kubeflow Trainer, or the packages in the image of one.

`packages` runs a job with one node of the runtime, prints its version of Python, its packages and the output
of nvidia-smi, and deletes the job.

\b
  $ kfpytorch runtimes list
  $ kfpytorch runtimes packages torch-distributed --namespace flytesnacks-development
"""
_LIST, _PACKAGES = "list", "packages"
_HEADER: Final = ("NAME", "KIND", "NAMESPACE", "FRAMEWORK", "NODES", "PROCESSES", "DEVICE", "IMAGE")


@click.command(name="runtimes", help=_HELP)
@click.argument("action", type=click.Choice([_LIST, _PACKAGES]))
@click.argument("runtime", required=False)
@click.option("--all", "job_runtimes", is_flag=True, help="Also the runtimes of single jobs.")
@asking.timeout_option("The longest time for `packages`, such as 90s or 15m. Default: 10m.")
@asking.namespace_option
@asking.server_options
@asking.output_option("table")
def command(**values: Any) -> None:
    """Run ``kfpytorch runtimes``."""
    if (values["action"] == _PACKAGES) != bool(values["runtime"]):
        raise click.UsageError("write `runtimes list`, or `runtimes packages NAME`")
    options = job_table.get_request_options(values)
    with asking.exit_on_error():
        if values["action"] == _LIST:
            found = client.list_runtimes(job_runtimes=values["job_runtimes"], **options)
            asking.print_messages(found, values["output"], _HEADER, _format_row, "there are no runtimes")
        else:
            _print_packages(
                client.get_runtime_packages(values["runtime"], timeout=values["timeout"], **options), values
            )


def _format_row(runtime: "wire.Runtime") -> tuple[str, ...]:
    device = f"{runtime.device_count} {runtime.device}".strip()
    texts = (runtime.namespace, runtime.framework, str(runtime.nodes), runtime.processes_per_node, device)
    return (runtime.name, runtime.kind, *(text or "-" for text in (*texts, runtime.image)))


def _print_packages(report: "wire.RuntimePackages", options: Mapping[str, Any]) -> None:
    if options["output"] == "json":
        json_lines.print_json(asking.encode_message(report))
        return
    rows = [(each.name, each.version) for each in report.packages]
    lines = [f"Python {printable.escape(report.python)}", *tables.format_table(("PACKAGE", "VERSION"), rows)]
    click.echo("\n".join([*lines, *([printable.escape(report.gpus)] if report.gpus else [])]))
