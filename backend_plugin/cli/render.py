"""``kfpytorch render``: prints the manifests of a task; `task_files` reads the task from a file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
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
)
from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_text
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import merge_patch

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
# Fields that the API server adds to every object, with different values each time.
_STORES_OWN: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)


@click.command(name="render", help=_HELP)
@sample_attempt.add_options()
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
    """Run ``kfpytorch render``: print the manifests that the server would create for a task."""
    if options["batch"]:
        json_lines.run_batch(render_requests.render_manifests)
        return
    _check_usage(options)
    with command_errors.exit_on_invalid_input():
        planned, manifests = _build_plan(options)
    _print_plan(planned, manifests, options)


def _build_plan(options: Mapping[str, Any]) -> tuple[Plan, Sequence[Manifest]]:
    """Return the plan of the task, and its manifests.

    With ``--dry-run``, the manifests are those that the cluster would store.
    """
    settings = input_files.read_settings(options["settings"])
    pod_templates = input_files.read_pod_templates(options["pods"])
    template, run = sample_attempt.read_task(
        options, sample_attempt.Place(**cluster_options.read_place(options))
    )
    capabilities = input_files.read_capabilities(options["capabilities"])

    def plan_task(templates: Sequence[Manifest], found: Capabilities) -> Plan:
        """Return the plan: the manifests of the task's job and of the objects that belong to the job.

        PodTemplates and capabilities in the user's files take precedence over those of the cluster, which
        are `templates` and `found`.
        """
        known = capabilities if capabilities != NOTHING else found
        return plan(template, run, settings, pod_templates or templates, known)

    if options["dry_run"]:
        return asyncio.run(_send_dry_runs(options, run.namespace, settings, plan_task))
    planned = plan_task((), NOTHING)
    return planned, planned.manifests


async def _send_dry_runs(
    options: Mapping[str, Any],
    namespace: str,
    settings: Settings,
    plan_task: Callable[[Sequence[Manifest], Capabilities], Plan],
) -> tuple[Plan, Sequence[Manifest]]:
    """Return the plan of a task, and each manifest as the cluster would store it.

    `plan_task` returns the plan for the given PodTemplates and gang capabilities, here those of the cluster.

    Raises:
        InvalidTask: If the task cannot be planned, or the cluster rejects a manifest.
        BackendError: If a request to the cluster fails or is forbidden.
    """
    from backend_plugin.doctor.cluster_reader import ClusterReader, open_connection
    from backend_plugin.doctor.facts import Subject
    from backend_plugin.doctor.queries import Query
    from backend_plugin.kube.api_resources import POD_TEMPLATES
    from backend_plugin.kube.capability_discovery import CapabilityDiscovery
    from backend_plugin.kube.options import KubernetesOptions
    from backend_plugin.kube.permissions import Permissions

    plugin = settings.kfpytorch
    kubernetes = KubernetesOptions(**{key: options[key] for key in _OF_DRY_RUN if options[key]})
    async with open_connection(kubernetes) as (_, api):
        reader, discovery = ClusterReader(api), CapabilityDiscovery(api, Permissions(kubernetes.namespaces))
        templates: list[Manifest] = []
        for place in dict.fromkeys((namespace, plugin.pod_template_namespace)):
            query = Query(subject=Subject.TEMPLATES, resource=POD_TEMPLATES, namespace=place)
            templates += await reader.read_objects(query) or ()
        planned = plan_task(templates, await discovery.fetch_capabilities(namespace, plugin))
        dialect = get_dialect(planned.dialect)
        return planned, _require_stored(
            planned, [await reader.dry_run_create(each, dialect) for each in planned.manifests]
        )


def _require_stored(planned: Plan, replies: Sequence[Any]) -> Sequence[Manifest]:
    """Return the manifests as the cluster would store them; raise `InvalidTask` if it rejects any."""
    refused = [
        Problem(
            field=get_text(sent, "kind"),
            value=get_text(sent, "metadata", "name"),
            message=f"is refused by the cluster ({reply.reason}): {reply.message}",
            remedy="write kfpytorch doctor FILE TASK, which prints what to change",
        )
        for sent, reply in zip(planned.manifests, replies, strict=True)
        if reply.stored is None
    ]
    if refused:
        raise InvalidTask(*refused)
    return [merge_patch(each.stored, {"metadata": dict.fromkeys(_STORES_OWN)}) for each in replies]


def _check_usage(options: Mapping[str, Any]) -> None:
    unused = [] if options["dry_run"] else [each for each in _OF_DRY_RUN if options[each] is not None]
    if unused:
        raise click.UsageError(f"--{unused[0]} has no effect without --dry-run=server")
    if not options["file"]:
        raise click.UsageError("the file is missing; write: kfpytorch render FILE TASK")


def _print_plan(planned: Plan, manifests: Sequence[Manifest], options: Mapping[str, Any]) -> None:
    reasons = planned.reasons if options["explain_scheduling"] else ()
    for line in (*(f"warning: {each}" for each in planned.warnings), *reasons):
        click.echo(line, err=True)
    # Write bytes, so that the output does not depend on the locale.
    if options["output"] == "json":
        json_lines.print_json(manifests)
    else:
        click.echo(_encode_yaml(manifests), nl=False)


def _encode_yaml(manifests: Sequence[Manifest]) -> bytes:
    import yaml

    # JSON removes shared values, so that the YAML contains no anchors.
    plain = msgspec.json.decode(json_lines.encode_json(manifests))
    written: bytes = yaml.safe_dump_all(
        plain, sort_keys=True, width=110, allow_unicode=True, explicit_start=True, encoding="utf-8"
    )
    return written
