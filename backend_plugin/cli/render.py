"""``kfpytorch render``: what a task asks of the cluster, before anybody asks.

Composes reading, planning and printing; how a file becomes a task is in `sources`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import rich_click as click

from backend_plugin.cli import lines, offline, requests, sources
from backend_plugin.core import settings as platform
from backend_plugin.core.errors import InvalidSettings, InvalidTask
from backend_plugin.core.pipeline import plan
from backend_plugin.core.values import Manifest

_REFUSED: Final = 1


@click.command(name="render")
@click.argument("file", required=False)
@click.argument("task", required=False)
@click.option("--input", "-i", "inputs", multiple=True, metavar="K=V", help="An input of the task, for args.")
@click.option("--settings", "-s", metavar="FILE", help="The platform's settings: YAML, Flyte's plugins.k8s.")
@click.option("--image", metavar="NAME", help="The image of tasks that name none. Default: flytekit's own.")
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--batch", is_flag=True, help="Read requests from stdin, one JSON object a line.")
def command(**said: Any) -> None:
    """Print the manifests of TASK in FILE, without a cluster.

    FILE is a Python file with a `@task`, a serialized task (.pb, .json, or - for stdin), or an archive
    that `pyflyte package` wrote (.tgz). TASK may be left out where FILE holds one task.
    """
    if said["batch"]:
        lines.answer_all(requests.render, sys.stdin.buffer, sys.stdout.buffer)
        return
    if not said["file"]:
        raise click.UsageError("which file? Write: kfpytorch render FILE TASK")
    try:
        _print(_rendered(said), said["output"])
    except (InvalidTask, InvalidSettings) as refusal:
        for problem in refusal.problems:
            click.echo(f"{problem.field}: {problem.value}\n  {problem.message}; {problem.remedy}", err=True)
        sys.exit(_REFUSED)
    except sources.Unreadable as error:
        raise click.ClickException(str(error)) from error


def _rendered(said: Mapping[str, Any]) -> tuple[Manifest, ...]:
    settings = _settings(said["settings"])
    template = sources.template(said["file"], said["task"], image=said["image"])
    template, run = offline.attempt(template, offline.inputs_of(said["inputs"], template))
    return plan(template, run, settings).manifests


def _settings(file: str | None) -> platform.Settings:
    if file is None:
        return platform.read({})
    import yaml

    try:
        said = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise sources.Unreadable(f"settings {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise sources.Unreadable(f"settings {file} are no YAML: {error}") from error
    return platform.read(offline.section(said or {}))


def _print(manifests: tuple[Manifest, ...], form: str) -> None:
    if form == "json":
        click.echo(msgspec.json.format(lines.as_json(manifests), indent=2))
        return
    import yaml

    # Through JSON: plain values, none of them shared, so that YAML needs no anchors.
    for manifest in msgspec.json.decode(lines.as_json(manifests)):
        click.echo(
            f"---\n{yaml.safe_dump(manifest, sort_keys=True, width=110, allow_unicode=True)}", nl=False
        )
