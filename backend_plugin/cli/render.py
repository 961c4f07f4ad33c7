"""``kfpytorch render``: what a task asks of the cluster, before anybody asks.

Composes reading, planning and printing; how a file becomes a task is in `sources`.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import rich_click as click

from backend_plugin.cli import ends, files, lines, offline, requests, sources
from backend_plugin.core.errors import InvalidSettings, InvalidTask
from backend_plugin.core.pipeline import plan
from backend_plugin.core.values import Manifest

_HELP: Final = """Print the manifests of TASK in FILE, without a cluster.

FILE is a Python file with a `@task`, a serialized task (.pb, .json, or - for stdin), or an archive that
`pyflyte package` wrote (.tgz). TASK may be left out where FILE holds one task.

\b
  $ kfpytorch render train.py train_model
  $ kfpytorch render train.py train_model --settings values.yaml -o json
  $ kfpytorch render flyte-package.tgz my.workflows.train_model
"""


@click.command(name="render", help=_HELP)
@click.argument("file", required=False)
@click.argument("task", required=False)
@click.option("--input", "-i", "inputs", multiple=True, metavar="K=V", help="An input of the task, for args.")
@click.option("--settings", "-s", metavar="FILE", help="The platform's settings: YAML, Flyte's plugins.k8s.")
@click.option(
    "--pod-template", "-p", "pods", multiple=True, metavar="FILE", help="PodTemplates of the cluster."
)
@click.option("--image", metavar="NAME", help="The image of tasks that name none. Default: flytekit's own.")
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--batch", is_flag=True, help="Read requests from stdin, one JSON object a line.")
def command(**said: Any) -> None:
    """``kfpytorch render``, of what was typed."""
    if said["batch"]:
        ends.refuse_beside_batch(said)
        lines.answer_all(requests.render, sys.stdin.buffer, sys.stdout.buffer)
        return
    if not said["file"]:
        raise click.UsageError("which file? Write: kfpytorch render FILE TASK")
    try:
        _print(_rendered(said), said["output"])
    except (InvalidTask, InvalidSettings) as refusal:
        ends.refuse_all(refusal.problems)
    except ends.Unreadable as error:
        ends.refuse(error)


def _rendered(said: Mapping[str, Any]) -> tuple[Manifest, ...]:
    settings, pod_templates = files.settings(said["settings"]), files.pod_templates(said["pods"])
    template = sources.template(said["file"], said["task"], image=said["image"])
    template, run = offline.attempt(template, offline.inputs_of(said["inputs"], template))
    return plan(template, run, settings, pod_templates).manifests


def _print(manifests: tuple[Manifest, ...], form: str) -> None:
    # Bytes: the same in every locale.
    click.echo(_as_json(manifests) if form == "json" else _as_yaml(manifests), nl=False)


def _as_json(manifests: tuple[Manifest, ...]) -> bytes:
    return msgspec.json.format(lines.as_json(manifests), indent=2) + b"\n"


def _as_yaml(manifests: tuple[Manifest, ...]) -> bytes:
    import yaml

    # Through JSON: plain values, none of them shared, so that YAML needs no anchors.
    plain = msgspec.json.decode(lines.as_json(manifests))
    written: bytes = yaml.safe_dump_all(
        plain, sort_keys=True, width=110, allow_unicode=True, explicit_start=True, encoding="utf-8"
    )
    return written
