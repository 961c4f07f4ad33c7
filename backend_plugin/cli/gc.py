"""``kfpytorch gc``: lists or deletes orphans, which are jobs whose execution no longer exists."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin.cli import cluster_options, command_errors, command_io, json_lines, serve_settings, tables
from backend_plugin.core import foreign_jobs, job_conditions, printable
from backend_plugin.core.errors import BackendError

if TYPE_CHECKING:
    from backend_plugin.shell.orphan_finder import OrphanCandidate, OrphanFinder, OrphanScan
    from backend_plugin.shell.settings import ServerSettings

_HELP: Final = """Print the jobs of a Kubernetes cluster whose execution is gone; with --delete, delete them.

Such a job has no owner, was created by a connector, and Flyte's object of its execution is not in its
namespace. A server deletes such jobs by itself, after two scans with a pause. This command does not wait for
the server: check the list first. It connects to the cluster, not to a server, as
`kfpytorch serve --cluster kubernetes` with the same settings does.

\b
  $ kfpytorch gc
  $ kfpytorch gc --namespace flytesnacks-development --delete
"""
_HEADER: Final = ("NAMESPACE", "NAME", "EXECUTION", "NODE", "ATTEMPT", "STATE", "AGE", "RESULT")
_STATES: Final = (*foreign_jobs.PHASES, job_conditions.CREATED)
"""Condition types in order of precedence, for the STATE column."""
_FAILED: Final = 1
_UNCLEAR: Final = "cannot determine if {jobs} jobs without an owner are orphans: {why}"
_Row = tuple["OrphanCandidate", str, str]
"""A job, its result (``orphan``, ``deleted``, ``kept`` or ``failed``), and a message."""


@click.command(name="gc", help=_HELP)
@click.option("--delete", is_flag=True, help="Delete jobs that are orphans in two successive scans.")
@click.option(
    "--older-than",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=command_io.parse_duration,
    help="Keep jobs that were created or ended less than this long ago.",
)
@click.option(
    "--confirm-after",
    metavar="DURATION",
    default="10s",
    show_default=True,
    callback=command_io.parse_duration,
    help="Time between the two scans of --delete.",
)
@click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    multiple=True,
    callback=cluster_options.parse_namespaces,
    help="Only jobs of these namespaces.",
)
@cluster_options.settings_option("server")
@cluster_options.connection_options()
@command_io.output_option("table")
def command(**options: Any) -> None:
    """Run ``kfpytorch gc``: print or delete the jobs of a cluster whose Flyte execution is gone."""
    logging.getLogger("backend_plugin").addHandler(logging.NullHandler())  # Errors are printed once, below.
    flags = {**cluster_options.build_flags(options), "namespaces": options["namespace"]}
    with command_io.exit_on_error():
        with command_errors.exit_on_invalid_input():
            settings = serve_settings.read_configuration(options["settings"], flags).server.settings
            scan, rows, now = asyncio.run(_collect_orphans(settings, options))
        _print_rows(rows, now, options["output"])
        results = {result for _, result, _ in rows}
        if "orphan" in results:
            click.echo("nothing was deleted; add --delete to delete these jobs", err=True)
        for why, jobs in scan.unclear.items():
            click.echo(printable.escape(f"Error: {_UNCLEAR.format(jobs=jobs, why=why)}"), err=True)
        if scan.unclear or "failed" in results:
            sys.exit(_FAILED)


async def _collect_orphans(
    settings: "ServerSettings", options: dict[str, Any]
) -> tuple["OrphanScan", Sequence[_Row], datetime]:
    """Return the last scan for orphans, a row for each orphan, and the current time on the cluster's clock.

    With ``--delete``, scan again after a pause, and delete the orphans that both scans have found.
    """
    from backend_plugin.cli import clusters
    from backend_plugin.kube.cluster import KubernetesCluster
    from backend_plugin.shell.allowlist import Allowlist
    from backend_plugin.shell.orphan_finder import OrphanFinder
    from backend_plugin.shell.output_prefixes import OutputPrefixes

    cluster = await KubernetesCluster.open(clusters.build_kubernetes_options(settings))
    try:
        finder = OrphanFinder(
            cluster=cluster,
            allowed=Allowlist(
                prefixes=OutputPrefixes(settings.output_prefixes),
                namespaces=settings.namespaces,
                refused=settings.excluded_namespaces,
            ),
            now=cluster.clock.get_current_time,
            least_age=options["older_than"],
        )
        scan = await finder.scan()
        if not (options["delete"] and scan.orphans):
            return scan, [(each, "orphan", "") for each in scan.orphans], cluster.clock.get_current_time()
        await asyncio.sleep(options["confirm_after"].total_seconds())
        still = await finder.scan()
        uids = {each.job.uid for each in still.orphans}
        rows = [await _delete_orphan(finder, each, is_still=each.job.uid in uids) for each in scan.orphans]
        return still, rows, cluster.clock.get_current_time()
    finally:
        await cluster.close()


async def _delete_orphan(finder: "OrphanFinder", suspect: "OrphanCandidate", *, is_still: bool) -> _Row:
    try:
        if is_still and await finder.delete_orphan(suspect):
            return suspect, "deleted", ""
    except BackendError as error:
        return suspect, "failed", str(error)
    return suspect, "kept", "the second scan did not confirm that it is an orphan"


def _print_rows(rows: Sequence[_Row], now: datetime, form: str) -> None:
    if form == "json":
        json_lines.print_json([_encode_row(*row) for row in rows])
    elif rows:
        click.echo("\n".join(tables.format_table(_HEADER, [_format_cells(*row, now) for row in rows])))
    else:
        click.echo("there are no orphans", err=True)


def _format_cells(suspect: "OrphanCandidate", result: str, message: str, now: datetime) -> tuple[str, ...]:
    job, run = suspect.job, suspect.run
    names = (job.namespace, job.name, run.execution, run.node_id or "-", str(run.attempt))
    shown = f"{result}: {message}" if message else result
    return (*names, _get_state(suspect), tables.format_age(job.created, now), shown)


def _encode_row(suspect: "OrphanCandidate", result: str, message: str) -> dict[str, Any]:
    job, run = suspect.job, suspect.run
    return {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "project": run.project,
        "domain": run.domain,
        "execution": run.execution,
        "node_id": run.node_id,
        "attempt": run.attempt,
        "state": _get_state(suspect),
        "created": None if job.created is None else f"{job.created:%Y-%m-%dT%H:%M:%SZ}",
        "result": result,
        "message": message or None,
    }


def _get_state(suspect: "OrphanCandidate") -> str:
    true_types = {each.type for each in suspect.job.conditions if each.true}
    return next((each for each in _STATES if each in true_types), "-")
