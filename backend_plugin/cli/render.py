"""``kfpytorch render``: prints the manifests of a task; `task_files` reads the task from a file."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import rich_click as click

from backend_plugin.cli import (
    cluster_options,
    command_errors,
    input_files,
    json_lines,
    render_requests,
    sample_attempt,
    task_options,
)
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import Plan
from backend_plugin.core.values import Manifest

_HELP: Final = """Print the Kubernetes manifests that the server would create for TASK in FILE.

FILE is a Python file with a `@task`, a serialized task (.pb, .json, or - for stdin), or an archive that
`pyflyte package` wrote (.tgz). TASK is optional if FILE contains one task.

\b
  $ kfpytorch render train.py train_model
  $ kfpytorch render train.py train_model --settings values.yaml -o json
  $ kfpytorch render train.py train_model --settings values.yaml --project flytesnacks --domain production
  $ kfpytorch render train.py train_model --namespace flytesnacks-development --dry-run=server
  $ kfpytorch render flyte-package.tgz my.workflows.train_model
"""
# Options that have no effect without --dry-run=server.
_OF_DRY_RUN: Final = tuple(cluster_options.KEYS)


@click.command(name="render", help=_HELP)
@task_options.add()
@cluster_options.settings_option("plugins.k8s")
@cluster_options.place_options("PROJECT-DOMAIN")
@click.option(
    "--pod-templates", "pods", multiple=True, metavar="FILE", help="YAML with PodTemplates of the cluster."
)
@click.option(
    "--capabilities", metavar="FILE", help="YAML with the cluster's gang capabilities, for scheduler: auto."
)
@click.option(
    "--explain-scheduling",
    is_flag=True,
    default=None,
    help="Print the scheduler of the job and the reason on stderr.",
)
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option(
    "--dry-run",
    type=click.Choice(["server"]),
    help="server: send the manifests to a cluster as a dry run, and print them as it would store them.",
)
@cluster_options.connection_options("For --dry-run=server. ")
@click.option("--batch", is_flag=True, help="Read requests from stdin, one JSON object per line.")
def command(**options: Any) -> None:
    """Run ``kfpytorch render``."""
    if options["batch"]:
        command_errors.require_batch_alone()
        json_lines.reply_to_all(render_requests.render_manifests, sys.stdin.buffer, sys.stdout.buffer)
        return
    _check_usage(options)
    with command_errors.exit_on_invalid_input():
        planned = _build_plan(options)
    _print_plan(planned, options)


def _build_plan(options: Mapping[str, Any]) -> Plan:
    settings, pod_templates = (
        input_files.read_settings(options["settings"]),
        input_files.read_pod_templates(options["pods"]),
    )
    template, run = task_options.read(options, sample_attempt.Place(**cluster_options.read_place(options)))
    capabilities = input_files.read_capabilities(options["capabilities"])
    if options["dry_run"]:
        from backend_plugin.cli import render_dry_run

        return render_dry_run.build_plan(options, (template, run), settings, (pod_templates, capabilities))
    return plan(template, run, settings, pod_templates, capabilities)


def _check_usage(options: Mapping[str, Any]) -> None:
    unused = [] if options["dry_run"] else [each for each in _OF_DRY_RUN if options[each] is not None]
    if unused:
        raise click.UsageError(f"--{unused[0]} has no effect without --dry-run=server")
    if not options["file"]:
        raise click.UsageError("the file is missing; write: kfpytorch render FILE TASK")


def _print_plan(planned: Plan, options: Mapping[str, Any]) -> None:
    reasons = planned.reasons if options["explain_scheduling"] else ()
    for line in (*(f"warning: {each}" for each in planned.warnings), *reasons):
        click.echo(line, err=True)
    # Write bytes, so that the output does not depend on the locale.
    encode = _encode_json if options["output"] == "json" else _encode_yaml
    click.echo(encode(planned.manifests), nl=False)


def _encode_json(manifests: tuple[Manifest, ...]) -> bytes:
    return msgspec.json.format(json_lines.encode_json(manifests), indent=2) + b"\n"


def _encode_yaml(manifests: tuple[Manifest, ...]) -> bytes:
    import yaml

    # JSON removes shared values, so that the YAML contains no anchors.
    plain = msgspec.json.decode(json_lines.encode_json(manifests))
    written: bytes = yaml.safe_dump_all(
        plain, sort_keys=True, width=110, allow_unicode=True, explicit_start=True, encoding="utf-8"
    )
    return written
