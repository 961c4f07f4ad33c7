"""``kfpytorch explain``: prints the phase that Flyte would get for a job, from files that kubectl wrote."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Final

import rich_click as click

from backend_plugin.cli import (
    cluster_options,
    command_errors,
    input_files,
    json_lines,
    observed_files,
    render_requests,
    tables,
)
from backend_plugin.core import custom, reading
from backend_plugin.core import settings as platform
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.judging_context import JudgingContext
from backend_plugin.core.pipeline import judge
from backend_plugin.core.verdict import Verdict

_HELP: Final = """Print the phase that Flyte would get for a job, with its cause and remedies.

Each file contains objects as `kubectl get -o yaml` or `-o json` prints them, also Lists and several
documents: the job, its pods, events, pod groups or Workloads. A file can also be an error*.pb. The
file - is stdin.

\b
  $ kubectl get pytorchjobs,pods,events -o yaml | kfpytorch explain - --job NAME
  $ kfpytorch explain job.yaml pods.yaml error-worker-1.pb
"""


@click.command(name="explain", help=_HELP)
@click.argument("files", nargs=-1, metavar="JOB.yaml [PODS.yaml ...]")
@click.option("--job", metavar="NAME", help="Name of the job, if there are several.")
@cluster_options.settings_option("plugins.k8s")
@click.option("--now", metavar="TIME", help="Time of the evaluation (RFC 3339). Default: the current time.")
@click.option("--outputs/--no-outputs", default=None, help="Whether outputs.pb exists.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--batch", is_flag=True, help="Read requests from stdin, one JSON object per line.")
def command(**options: Any) -> None:
    """Run ``kfpytorch explain``."""
    if options["batch"]:
        command_errors.require_batch_alone()
        json_lines.reply_to_all(judge_request, sys.stdin.buffer, sys.stdout.buffer)
        return
    if not options["files"]:
        kinds = ",".join((*(each.resource.plural for each in DIALECTS.values()), "pods", "events"))
        raise click.UsageError(f"no file is given; run: kubectl get {kinds} -o yaml | kfpytorch explain -")
    now = datetime.now(timezone.utc) if options["now"] is None else reading.parse_time(options["now"])
    if now is None:
        raise click.UsageError(f"--now {options['now']} is not an RFC 3339 time; write 2026-01-31T12:00:00Z")
    with command_errors.exit_on_invalid_input():
        rules = _build_judging_context(input_files.read_settings(options["settings"]))
        observed = observed_files.read_files(options["files"], job=options["job"], outputs=options["outputs"])
    _print_verdict(judge(observed, rules, now), options["output"])


def judge_request(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the phase of a job, with its reason and message, for one request of a batch.

    The time is ``now`` in the request, or else the current time.
    """
    now = reading.get_time(request, "now") or datetime.now(timezone.utc)
    rules = _build_judging_context(render_requests.read_settings(request))
    if request.get("template") is not None:
        template, run = render_requests.read_task(request)
        # Problems of the task are ignored, because its job exists.
        deadlines = custom.decode(template, run, []).deadlines
        rules = replace(rules, run=run, task_config=dict(template.config), deadlines=deadlines)
    return _encode_verdict(judge(observed_files.read_request(request), rules, now))


def _build_judging_context(settings: platform.Settings) -> JudgingContext:
    return JudgingContext(judging=settings.judging, logs=settings.logs)


def _encode_verdict(verdict: Verdict) -> Mapping[str, Any]:
    return {
        "phase": verdict.phase.value,
        "reason": verdict.reason,
        "message": verdict.message,
        "cause": verdict.cause.value if verdict.cause else None,
        "retry": verdict.retry,
        "logs": [{"name": link.name, "uri": link.uri} for link in verdict.logs],
    }


def _print_verdict(verdict: Verdict, form: str) -> None:
    if form == "json":
        json_lines.print_json(_encode_verdict(verdict))
        return
    cause = verdict.cause.value if verdict.cause else ""
    click.echo("\n".join(tables.format_verdict(verdict.phase.value, cause, verdict)))
