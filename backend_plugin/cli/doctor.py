"""``kfpytorch doctor``: checks whether a cluster can run a distributed job; see `backend_plugin.doctor`."""

import asyncio
import logging
import secrets
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

import rich_click as click

from backend_plugin.cli import (
    cluster_options,
    command_errors,
    command_io,
    json_lines,
    release,
    sample_attempt,
    serve_settings,
    tables,
)
from backend_plugin.core import printable

if TYPE_CHECKING:
    from backend_plugin.doctor.check import Finding
    from backend_plugin.doctor.fact_collector import DoctorRequest
    from backend_plugin.doctor.facts import Facts
    from backend_plugin.kube.options import KubernetesOptions
    from backend_plugin.server_address import Server
    from backend_plugin.shell.settings import ServerSettings

_HELP: Final = """Check that a Kubernetes cluster has what a distributed job needs, and print what to change.

The command reads the cluster with your permissions, and sends dry runs of a job and its pods. It changes
nothing in the cluster, except with --burn-in, which runs a small job and deletes it. It prints what it
could not read, and the missing permissions.

With FILE and TASK, as for `kfpytorch render`, it checks the cluster for this task. Without them, it checks
for a small job with one master and one worker.

\b
  $ kfpytorch doctor --namespace flytesnacks-development
  $ kfpytorch doctor train.py train_model -n flytesnacks-development --settings values.yaml
  $ kfpytorch doctor train.py train_model -n flytesnacks-development --burn-in
"""
_COLOURS: Final = {"error": "red", "warning": "yellow", "unknown": "cyan", "note": "blue"}
_NAMESPACE: Final = "default"


@click.command(name="doctor", help=_HELP)
@sample_attempt.add_options()
@cluster_options.place_options("PROJECT-DOMAIN if one is given, else default")
@cluster_options.settings_option("server, plugins.k8s")
@click.option(
    "--service-account",
    metavar="NAME",
    default="default",
    show_default=True,
    help="The service account of the pods.",
)
@click.option(
    "--flyte-namespace", metavar="NAME", default="flyte", show_default=True, help="The namespace of Flyte."
)
@click.option(
    "--connector", metavar="HOST:PORT", help="Check that the connector there serves tasks of type pytorch."
)
@command_io.credential_options
@click.option(
    "--output-prefixes",
    metavar="URL",
    multiple=True,
    help="Write a small object below this URL, and delete it. Default: server.output-prefixes.",
)
@click.option(
    "--read-only", is_flag=True, help="Only list and read below the output prefixes; write nothing."
)
@click.option(
    "--burn-in", is_flag=True, help="Run an all-reduce on the replicas of TASK, and print its bandwidth."
)
@click.option(
    "--burn-in-timeout",
    metavar="DURATION",
    default="5m",
    show_default=True,
    callback=command_io.parse_duration,
    help="The time limit of --burn-in, the start of its pods included.",
)
@cluster_options.connection_options()
@command_io.output_option("text")
def command(**options: Any) -> None:
    """Run ``kfpytorch doctor``: check that a cluster has what a distributed job needs."""
    if options["burn_in"] and not options["file"]:
        raise click.UsageError(
            "--burn-in runs on the replicas of a task; write: kfpytorch doctor FILE TASK --burn-in"
        )
    logging.getLogger("backend_plugin").addHandler(logging.NullHandler())  # Errors are printed once, below.
    with command_io.exit_on_error():
        with command_errors.exit_on_invalid_input():
            kubernetes, request = _build_request(options)
        limit = options["burn_in_timeout"] if options["burn_in"] else None
        signals: list[int] = []
        try:
            facts, burned = asyncio.run(_collect_facts(kubernetes, request, limit, signals))
        except asyncio.CancelledError:
            sys.exit(128 + signals[0])
        _print_report(facts, burned, options["output"])


def _build_request(options: Mapping[str, Any]) -> tuple["KubernetesOptions", "DoctorRequest"]:
    from backend_plugin.cli import clusters
    from backend_plugin.doctor import task_planner
    from backend_plugin.doctor.burn_in import job
    from backend_plugin.doctor.fact_collector import DoctorRequest

    configuration = serve_settings.read_configuration(
        options["settings"], cluster_options.build_flags(options)
    )
    server = configuration.server.settings
    place = sample_attempt.Place(**(cluster_options.read_place(options) or {"namespace": _NAMESPACE}))
    template, run = sample_attempt.read_task(options, place, task_planner.build_default_task())
    run = job.build_attempt(run, secrets.token_hex(8)) if options["burn_in"] else run
    concrete = [each for each in server.output_prefixes if not cluster_options.is_pattern(each)]
    request = DoctorRequest(
        template=template,
        run=replace(run, service_account=options["service_account"]),
        named=bool(options["file"]),
        settings=configuration.platform,
        flyte_namespace=options["flyte_namespace"],
        output_prefixes=options["output_prefixes"] or concrete,
        read_only=options["read_only"],
        release=release.read_version(),
        connector=_connector(options, server),
    )
    return clusters.build_kubernetes_options(server), request


def _connector(options: Mapping[str, Any], settings: "ServerSettings") -> "Server | None":
    """Return the connector to test; None without ``--connector``.

    Without ``--ca``, the server certificate in the settings is trusted if its file exists on this machine, as
    in the pod of ``helm test``.
    """
    if not options["connector"]:
        return None
    server = command_io.read_server(options, options["connector"])
    file = settings.tls.certificate if settings.tls else None
    if server.ca or not options["connector"].startswith("grpcs://") or file is None or not file.is_file():
        return server
    return replace(server, ca=str(file))


async def _collect_facts(
    options: "KubernetesOptions", request: "DoctorRequest", limit: timedelta | None, signals: list[int]
) -> tuple["Facts", Sequence["Finding"]]:
    """Return the facts about the cluster, and the findings of a burn-in, which runs only if `limit` is given.

    A stop signal is added to `signals` and ends the burn-in. The job of the burn-in is deleted in any case.
    """
    from backend_plugin.doctor.burn_in import runner
    from backend_plugin.doctor.fact_collector import collect_facts
    from backend_plugin.shell import stop_signals

    facts = await collect_facts(options, request)
    if not limit:
        return facts, ()
    limits = runner.BurnInLimits(
        seconds=max(1, round(limit.total_seconds())),
        say=lambda line: click.echo(f"burn-in: {line}", err=True),
        is_interrupted=lambda: bool(signals),
    )
    for number in stop_signals.list_stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, signals.append, number)
    return facts, await runner.run_burn_in(options, facts, limits)


def _print_report(facts: "Facts", burned: Sequence["Finding"], form: str) -> NoReturn:
    from backend_plugin.doctor import run_checks, summary

    findings = run_checks.sort_findings([*run_checks.list_findings(facts), *burned])
    code, left = run_checks.get_exit_code(findings), run_checks.list_skipped_checks(facts)
    about = summary.build_lines(facts)
    if form == "json":
        json_lines.print_json({"about": about, "findings": findings, "not_checked": left, "exit_code": code})
        sys.exit(code)
    width = max(map(len, about))
    for key, text in about.items():
        click.echo(printable.escape(f"{key:<{width}}  {text}"))
    click.echo()
    for each in findings:
        level = each.level.value
        click.echo(f"{click.style(level, fg=_COLOURS[level]) if tables.is_coloured() else level}  {each.id}")
        click.echo(printable.escape(f"  {each.sentence}\n  remedy: {each.remedy}"))
    # The levels are in the order of the findings, the worst first.
    counts = Counter(each.level.value for each in findings)
    totals = ", ".join(f"{number} {level}" for level, number in counts.items()) or "no problems found"
    click.echo(f"{len(run_checks.CHECKS) - len(left)} of {len(run_checks.CHECKS)} checks made: {totals}")
    sys.exit(code)
