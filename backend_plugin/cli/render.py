"""``kfpytorch render``: prints the manifests of a task; `sources` reads the task from a file."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import rich_click as click

from backend_plugin.cli import cluster_options, ends, files, lines, offline, requests, sources
from backend_plugin.core.errors import InvalidSettings, InvalidTask
from backend_plugin.core.job import Plan
from backend_plugin.core.pipeline import plan
from backend_plugin.core.values import Manifest

_HELP: Final = """Print the manifests of TASK in FILE, without a cluster; with --server, as one stores them.

FILE is a Python file with a `@task`, a serialized task (.pb, .json, or - for stdin), or an archive that
`pyflyte package` wrote (.tgz). TASK may be left out where FILE holds one task.

\b
  $ kfpytorch render train.py train_model
  $ kfpytorch render train.py train_model --settings values.yaml -o json
  $ kfpytorch render train.py train_model --server --namespace flytesnacks-development
  $ kfpytorch render flyte-package.tgz my.workflows.train_model
"""
# Options that have no effect without --server.
_OF_SERVER: Final = ("namespace", *cluster_options.KEYS)


@click.command(name="render", help=_HELP)
@click.argument("file", required=False)
@click.argument("task", required=False)
@click.option("--input", "-i", "inputs", multiple=True, metavar="K=V", help="An input of the task, for args.")
@click.option("--settings", "-s", metavar="FILE", help="The platform's settings: YAML, Flyte's plugins.k8s.")
@click.option(
    "--pod-template", "-p", "pods", multiple=True, metavar="FILE", help="PodTemplates of the cluster."
)
@click.option("--findings", "-f", metavar="FILE", help="What the cluster has for gangs, for scheduler: auto.")
@click.option("--explain", is_flag=True, default=None, help="Say on stderr who schedules the job, and why.")
@click.option("--image", metavar="NAME", help="The image of tasks that name none. Default: flytekit's own.")
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--server", is_flag=True, default=None, help="As a cluster would store them, by a dry run.")
@click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    callback=cluster_options.namespace,
    help="Of --server. Default: project-development.",
)
@cluster_options.reached_options("Of --server. ")
@click.option("--batch", is_flag=True, help="Read requests from stdin, one JSON object a line.")
def command(**said: Any) -> None:
    """Run ``kfpytorch render``."""
    if said["batch"]:
        ends.refuse_beside_batch(said)
        lines.answer_all(requests.render, sys.stdin.buffer, sys.stdout.buffer)
        return
    if not said["server"] and (astray := [each for each in _OF_SERVER if said[each] is not None]):
        raise click.UsageError(f"--{astray[0]} says nothing without --server")
    if not said["file"]:
        raise click.UsageError("which file? Write: kfpytorch render FILE TASK")
    try:
        planned = _rendered(said)
    except (InvalidTask, InvalidSettings) as refusal:
        ends.refuse_all(refusal.problems)
    except ends.Unreadable as error:
        ends.refuse(error)
    else:
        _explain(planned, reasons=planned.reasons if said["explain"] else ())
        _print(planned.manifests, said["output"])


def _rendered(said: Mapping[str, Any]) -> Plan:
    settings, pod_templates = files.settings(said["settings"]), files.pod_templates(said["pods"])
    template = sources.template(said["file"], said["task"], image=said["image"])
    template, run = offline.attempt(template, offline.inputs_of(said["inputs"], template))
    found = files.findings(said["findings"])
    if said["server"]:
        from backend_plugin.cli import render_server

        return render_server.rendered(said, (template, run), settings, (pod_templates, found))
    return plan(template, run, settings, pod_templates, found)


def _explain(planned: Plan, *, reasons: Sequence[str]) -> None:
    for line in (*(f"warning: {each}" for each in planned.warnings), *reasons):
        click.echo(line, err=True)


def _print(manifests: tuple[Manifest, ...], form: str) -> None:
    # Bytes are the same in every locale.
    click.echo(_as_json(manifests) if form == "json" else _as_yaml(manifests), nl=False)


def _as_json(manifests: tuple[Manifest, ...]) -> bytes:
    return msgspec.json.format(lines.as_json(manifests), indent=2) + b"\n"


def _as_yaml(manifests: tuple[Manifest, ...]) -> bytes:
    import yaml

    # JSON removes shared values, so that the YAML contains no anchors.
    plain = msgspec.json.decode(lines.as_json(manifests))
    written: bytes = yaml.safe_dump_all(
        plain, sort_keys=True, width=110, allow_unicode=True, explicit_start=True, encoding="utf-8"
    )
    return written
