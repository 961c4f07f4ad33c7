"""``kfpytorch gc``: lists or deletes orphans, which are jobs whose execution no longer exists."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin.cli import asking, cluster_options, command_errors, json_lines, serve_settings, tables
from backend_plugin.core import job_conditions, printable
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
_STATES: Final = (
    job_conditions.SUCCEEDED,
    job_conditions.FAILED,
    job_conditions.SUSPENDED,
    job_conditions.RESTARTING,
    job_conditions.RUNNING,
    job_conditions.CREATED,
)
"""Condition types in order of precedence, for the STATE column."""
_FAILED: Final = 1
_UNCLEAR: Final = "cannot determine if {jobs} jobs without an owner are orphans: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobResult:
    """The result of the command for one job."""

    suspect: "OrphanCandidate"
    result: str
    """``orphan``, ``deleted``, ``kept`` or ``failed``."""
    message: str = ""


@click.command(name="gc", help=_HELP)
@click.option("--delete", is_flag=True, help="Delete jobs that are orphans in two successive scans.")
@click.option(
    "--older-than",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=asking.parse_duration,
    help="Keep jobs that were created or ended less than this long ago.",
)
@click.option(
    "--confirm-after",
    metavar="DURATION",
    default="10s",
    show_default=True,
    callback=asking.parse_duration,
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
@asking.output_option("table")
def command(**options: Any) -> None:
    """Run ``kfpytorch gc``."""
    logging.getLogger("backend_plugin").addHandler(logging.NullHandler())  # Errors are printed once, below.
    flags = {**cluster_options.build_flags(options), "namespaces": options["namespace"]}
    with asking.exit_on_error():
        with command_errors.exit_on_invalid_input():
            settings = serve_settings.read_configuration(options["settings"], flags).server.settings
            done = asyncio.run(_collect_orphans(settings, options))
        _print_results(done, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScanResult:
    found: "OrphanScan"
    rows: Sequence[_JobResult]
    at: datetime
    """The time of the cluster's clock."""

    @property
    def is_incomplete(self) -> bool:
        """True if a job was not examined or not deleted."""
        return bool(self.found.unclear) or any(row.result == "failed" for row in self.rows)


async def _collect_orphans(settings: "ServerSettings", options: dict[str, Any]) -> _ScanResult:
    """Scan for orphans; with ``--delete``, scan again after a pause and delete those in both scans."""
    from backend_plugin.cli import clusters
    from backend_plugin.kube.cluster import KubernetesCluster
    from backend_plugin.shell.allowlist import Allowlist
    from backend_plugin.shell.orphan_finder import OrphanFinder
    from backend_plugin.shell.output_prefixes import OutputPrefixes

    cluster = await KubernetesCluster.open(clusters.build_kubernetes_options(settings))
    try:
        orphanage = OrphanFinder(
            cluster=cluster,
            executions=cluster,
            allowed=Allowlist(
                prefixes=OutputPrefixes(settings.output_prefixes),
                namespaces=settings.namespaces,
                refused=settings.excluded_namespaces,
            ),
            now=cluster.clock.get_current_time,
            least_age=options["older_than"],
        )
        scan = await orphanage.scan()
        if not (options["delete"] and scan.orphans):
            rows = [_JobResult(suspect=each, result="orphan") for each in scan.orphans]
            return _ScanResult(found=scan, rows=rows, at=cluster.clock.get_current_time())
        await asyncio.sleep(options["confirm_after"].total_seconds())
        still = await orphanage.scan()
        uids = {each.job.uid for each in still.orphans}
        rows = [await _delete_orphan(orphanage, each, is_still=each.job.uid in uids) for each in scan.orphans]
        return _ScanResult(found=still, rows=rows, at=cluster.clock.get_current_time())
    finally:
        await cluster.close()


async def _delete_orphan(
    orphanage: "OrphanFinder", suspect: "OrphanCandidate", *, is_still: bool
) -> _JobResult:
    try:
        if is_still and await orphanage.delete_orphan(suspect):
            return _JobResult(suspect=suspect, result="deleted")
    except BackendError as trouble:
        return _JobResult(suspect=suspect, result="failed", message=str(trouble))
    return _JobResult(
        suspect=suspect, result="kept", message="the second scan did not confirm that it is an orphan"
    )


def _print_results(done: _ScanResult, options: dict[str, Any]) -> None:
    _print_rows(done, options["output"])
    if done.rows and not options["delete"]:
        click.echo("nothing was deleted; add --delete to delete these jobs", err=True)
    for why, jobs in done.found.unclear.items():
        click.echo(printable.escape(f"Error: {_UNCLEAR.format(jobs=jobs, why=why)}"), err=True)
    if done.is_incomplete:
        sys.exit(_FAILED)


def _print_rows(done: _ScanResult, form: str) -> None:
    if form == "json":
        json_lines.print_json([_encode_row(row) for row in done.rows])
    elif done.rows:
        cells = [_format_cells(row, done.at) for row in done.rows]
        click.echo("\n".join(tables.format_table(_HEADER, cells)))
    else:
        click.echo("there are no orphans", err=True)


def _format_cells(row: _JobResult, now: datetime) -> tuple[str, ...]:
    job, run = row.suspect.job, row.suspect.run
    names = (job.namespace, job.name, run.execution, run.node_id or "-", str(run.attempt))
    result = f"{row.result}: {row.message}" if row.message else row.result
    return (*names, _get_state(row.suspect), tables.format_age(job.created, now), result)


def _encode_row(row: _JobResult) -> dict[str, Any]:
    job, run = row.suspect.job, row.suspect.run
    return {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "project": run.project,
        "domain": run.domain,
        "execution": run.execution,
        "node_id": run.node_id,
        "attempt": run.attempt,
        "state": _get_state(row.suspect),
        "created": None if job.created is None else f"{job.created:%Y-%m-%dT%H:%M:%SZ}",
        "result": row.result,
        "message": row.message or None,
    }


def _get_state(suspect: "OrphanCandidate") -> str:
    true_types = {each.type for each in suspect.job.conditions if each.true}
    return next((each for each in _STATES if each in true_types), "-")
