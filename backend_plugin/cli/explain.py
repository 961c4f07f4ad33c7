"""``kfpytorch explain``: prints the phase that Flyte would get for a job, from the job's objects.

The objects are in files that kubectl wrote or, with ``--batch``, in JSON on stdin, one job on each line.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import rich_click as click
import yaml

from backend_plugin.cli import (
    cluster_options,
    command_errors,
    input_files,
    json_lines,
    render_requests,
    tables,
)
from backend_plugin.cli.command_errors import Misused, UnusableInput
from backend_plugin.core import reading
from backend_plugin.core import settings as platform
from backend_plugin.core.decoding import custom
from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.error_document import build_unreadable_document, decode_document
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Verdict
from backend_plugin.core.object_readers import read_observed, read_pod
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.shell import yaml_loader

_KINDS: Final = {
    **dict.fromkeys(DIALECTS, "job"),
    "Pod": "pods",
    "Event": "events",
    "PodGroup": "pod_groups",
    "Workload": "pod_groups",
}
"""The key that contains the objects in a ``--batch`` request, by the kind of the objects."""
_OUTPUTS: Final = "outputs.pb"
"""The name of the file that a successful task writes."""

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
    """Run ``kfpytorch explain``: print the phase that Flyte would get for a job, with its cause."""
    if options["batch"]:
        json_lines.run_batch(judge_request)
        return
    if not options["files"]:
        kinds = ",".join((*(each.resource.plural for each in DIALECTS.values()), "pods", "events"))
        raise click.UsageError(f"no file is given; run: kubectl get {kinds} -o yaml | kfpytorch explain -")
    now = datetime.now(timezone.utc) if options["now"] is None else reading.parse_time(options["now"])
    if now is None:
        raise click.UsageError(f"--now {options['now']} is not an RFC 3339 time; write 2026-01-31T12:00:00Z")
    with command_errors.exit_on_invalid_input():
        rules = _build_judging_context(input_files.read_settings(options["settings"]))
        observed = _read_files(options["files"], job=options["job"], outputs=options["outputs"])
    _print_verdict(judge(observed, rules, now), options["output"])


def _print_verdict(verdict: Verdict, form: str) -> None:
    if form == "json":
        json_lines.print_json(_encode_verdict(verdict))
    else:
        cause = verdict.cause.value if verdict.cause else ""
        click.echo("\n".join(tables.format_verdict(verdict.phase.value, cause, verdict)))


def judge_request(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the verdict on the job of a batch request: its Flyte ``phase``, ``reason``, ``message`` etc.

    The verdict is for the time ``now`` of the request, by default the current time.
    """
    now = reading.get_time(request, "now") or datetime.now(timezone.utc)
    rules = _build_judging_context(render_requests.read_settings(request))
    if request.get("template") is not None:
        template, run = render_requests.read_task(request)
        # Problems of the task are ignored, because its job exists.
        deadlines = custom.decode(template, run, []).deadlines
        rules = replace(rules, run=run, task_config=dict(template.config), deadlines=deadlines)
    # Invalid values in the request are ignored.
    files = [_read_error_file(each) for each in get_mappings(request, "error_files")]
    return _encode_verdict(judge(read_observed({**request, "error_files": files}), rules, now))


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


# ---- objects


def _read_error_file(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of ``error_files`` in a ``--batch`` request; its ``base64``, if any, is decoded."""
    data = value.get("base64")
    if not isinstance(data, str):
        return value
    try:
        read = decode_document(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        read = build_unreadable_document("cannot be read: it is not base64")
    return {**read, "path": value.get("path")}


def _read_files(files: Iterable[str], *, job: str | None, outputs: bool | None) -> Observed:
    """Read `files`, and return the job named `job`, or the only job, with its objects and `outputs`.

    `outputs` is True if the job has written ``outputs.pb``, False if it has not, and None if that is unknown.
    If `files` contains a file ``outputs.pb``, `outputs` becomes True.

    Raises:
        UnusableInput: If a file is missing or invalid, or no file contains such a job.
    """
    objects: dict[str, list[Mapping[str, Any]]] = {
        kind: [] for kind in (*_KINDS.values(), "error_files", "others")
    }
    for name in dict.fromkeys(files):
        if Path(name).name == _OUTPUTS:
            input_files.read_input(name)
            outputs = True
        else:
            for kind, each in _iter_objects(name):
                objects[kind].append(each)
    selected = _select_job(job, objects)
    own = {
        kind: _select_own_objects(objects[kind], selected, objects["job"])
        for kind in ("events", "pod_groups")
    }
    pods = _select_own_pods(objects["pods"], selected)
    return read_observed({**objects, **own, "pods": pods, "job": selected, "outputs": outputs})


def _select_job(
    name: str | None, objects_by_kind: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Mapping[str, Any] | None:
    """Return the job `name`, or the only job; None if the job is deleted and only an error file is left."""
    jobs = {get_text(each, "metadata", "name"): each for each in objects_by_kind["job"]}
    if name in jobs:
        return jobs[name]
    if name is None and len(objects_by_kind["job"]) == 1:
        return objects_by_kind["job"][0]
    if jobs:
        problem = "there is more than one job" if name is None else f"there is no job {name}"
        raise Misused(f"{problem}; add --job with one of: {', '.join(sorted(jobs))}")
    if objects_by_kind["error_files"]:
        return None
    raise UnusableInput(
        f"no file contains a {' or '.join(DIALECTS)}; "
        f"run: kubectl get {DEFAULT.resource.plural} NAME -o yaml | kfpytorch explain -"
    )


def _select_own_pods(pods: Sequence[Manifest], job: Manifest | None) -> Sequence[Manifest]:
    names = ("", get_text(job, "metadata", "name"))  # Some pods have no label with the name of a job.
    return [each for each in pods if job is None or read_pod(each).job_name in names]


def _select_own_objects(
    objects: Sequence[Manifest], job: Manifest | None, jobs: Sequence[Manifest]
) -> Sequence[Manifest]:
    """Return those of `objects`, events or pod groups, that belong to `job`; all of them if `job` is None.

    An object that names no related object is included. `jobs` are all known jobs, because the name of one may
    begin with the name of another.
    """
    if job is None:
        return objects
    names = [get_text(each, "metadata", "name") for each in jobs]

    def is_own(object_name: str) -> bool:
        """True for the name of the job or of one of its pods.

        If there are jobs ``a`` and ``a-b``, ``a-b-worker-0`` is only a pod of ``a-b``.
        """
        near = [name for name in names if f"{object_name}-".startswith(f"{name}-")]
        return max(near, key=len, default=None) == get_text(job, "metadata", "name")

    return [
        each for each in objects if not (related := _list_related_names(each)) or any(map(is_own, related))
    ]


def _list_related_names(manifest: Manifest) -> Sequence[str]:
    """Return the name of an event's object, or the names of a pod group's owners; empty if unknown."""
    regarding = get_mapping(manifest, "involvedObject") or get_mapping(manifest, "regarding")
    owners = get_mappings(manifest, "metadata", "ownerReferences")
    return [name for each in (regarding, *owners) if (name := get_text(each, "name"))]


def _iter_objects(name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a key and an object for each object in the file `name`; a List is replaced by its items.

    The key shows the kind of object: a value of `_KINDS` or ``error_files``, as in a batch request, or
    ``others`` for a kind that does not affect the phase of a job.
    """
    data = input_files.read_input(name)
    if name.endswith(".pb"):
        yield "error_files", {**decode_document(data), "path": name}
        return
    try:
        documents = yaml_loader.load_documents(data, times=False)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UnusableInput(f"{name}: is neither YAML nor JSON: {error}") from error
    for document in documents:
        for each in _iter_items(document) if isinstance(document, Mapping) else ():
            yield _KINDS.get(str(each.get("kind")), "others"), each


def _iter_items(document: Manifest) -> Iterator[Manifest]:
    """Yield the items of a List, or `document` itself if it is not a List.

    An item without a kind gets the kind of the list without ``List``: the API server omits the kind of items.
    """
    if not isinstance(document.get("items"), list):
        yield document
        return
    kind = get_text(document, "kind").removesuffix("List")
    for item in get_mappings(document, "items"):
        yield {"kind": kind, **item}
