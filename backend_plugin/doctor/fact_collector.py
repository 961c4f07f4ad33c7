"""Collects the facts of a cluster with the permissions of the user."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Attempt
from backend_plugin.core.reading import get_mappings, get_text, get_text_map
from backend_plugin.core.scheduling.capabilities import NOTHING
from backend_plugin.core.scheduling.registry import ADMISSION_SCHEDULER
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import access_review, deployments, external_probes, queries, task_planner
from backend_plugin.doctor.checks import gang
from backend_plugin.doctor.cluster_reader import ClusterReader, open_connection
from backend_plugin.doctor.facts import DryRunReply, Facts, NotReadable, Subject
from backend_plugin.doctor.operators.table import get_operator
from backend_plugin.doctor.queries import Query
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.capability_discovery import CapabilityDiscovery
from backend_plugin.kube.clock import Clock, get_local_time
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.credentials import CredentialsUnusable
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions
from backend_plugin.server_address import Server
from backend_plugin.shell.cluster import ClusterUnavailable

_SCHEDULER: Final = "scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """The task to check, and the other options of ``kfpytorch doctor``."""

    template: TaskTemplate
    run: Attempt
    named: bool
    """True if the user named the task; False for the default task."""
    settings: Settings = field(default_factory=Settings)
    flyte_namespace: str = "flyte"
    output_prefixes: Sequence[str] = ()
    read_only: bool = False
    """True if the test of the output prefixes must only read objects and write none."""
    release: str = ""
    connector: Server | None = None


async def collect_facts(options: KubernetesOptions, request: DoctorRequest) -> Facts:
    """Return all facts that can be read. Errors of requests are recorded in the facts and not raised."""
    facts = Facts(
        namespace=request.run.namespace,
        flyte_namespace=request.flyte_namespace,
        settings=request.settings,
        release=request.release,
    )
    try:
        async with open_connection(options) as (connection, api):
            found = await _collect_from_api(connection.clock, api, options, request, facts)
    except CredentialsUnusable as unusable:
        # The messages of this error end with a remedy, and the text before it may contain a semicolon.
        reason, _, remedy = str(unusable).rpartition("; ")
        return replace(
            facts, unreachable=f"the API server cannot be reached: {reason}", unreachable_remedy=remedy
        )
    except ApiError as answer:
        return replace(facts, unreachable=f"the API server answers {answer}")
    except BackendError as error:
        return replace(facts, unreachable=str(error))
    return await external_probes.probe_external(
        found, request.output_prefixes, request.connector, read_only=request.read_only
    )


async def _collect_from_api(
    clock: Clock, api: ApiClient, options: KubernetesOptions, request: DoctorRequest, facts: Facts
) -> Facts:
    version = await api.fetch_object(ApiRequest(path="/version"))
    groups = get_mappings(await api.fetch_object(ApiRequest(path="/apis")), "groups")
    facts = replace(
        facts,
        version=get_text(version, "gitVersion"),
        ahead=clock.get_current_time() - get_local_time(),
        now=clock.get_current_time(),
        objects={Subject.GROUPS: groups},
    )
    reader = ClusterReader(api, groups)
    discovery = CapabilityDiscovery(api, Permissions(options.namespaces))
    facts = await _with_job_kinds(api, facts)
    platform = request.settings.kfpytorch
    rows = queries.build_base_queries(facts.namespace, facts.flyte_namespace, platform.pod_template_namespace)
    facts = _with_documents(await _with_query_results(reader, facts, rows))
    capabilities = NOTHING
    with suppress(ClusterUnavailable):  # The other requests of the doctor report this error.
        capabilities = await discovery.fetch_capabilities(facts.namespace, platform)
    facts = task_planner.add_plan(request, facts, capabilities)
    schedulers = [facts.gang.scheduler, *([ADMISSION_SCHEDULER] if facts.gang.local_queue else ())]
    gangs = [each for name in schedulers for each in queries.build_gang_queries(name, facts.namespace)]
    facts = await _with_query_results(reader, facts, (*_build_scheduler_queries(facts), *gangs))
    try:
        facts = replace(facts, missing_permissions=await access_review.list_missing_permissions(api, facts))
    except NotReadable as why:
        facts = replace(facts, unseen={**facts.unseen, Subject.RIGHTS: why})
    return await _with_dry_runs(reader, facts)


async def _with_job_kinds(api: ApiClient, facts: Facts) -> Facts:
    """Return `facts` with the kinds that the cluster serves in the API groups of PyTorchJob and TrainJob."""
    found = list[Manifest]()
    served = facts.list_api_groups()
    resources = [each.resource for each in DIALECTS.values() if each.resource.group in served]
    # All users can read API discovery.
    for version in dict.fromkeys(each.api_version for each in resources):
        try:
            found += get_mappings(await api.fetch_object(ApiRequest(path=f"/apis/{version}")), "resources")
        except ApiError as answer:
            if not answer.is_not_served:
                raise
    return replace(facts, objects={**facts.objects, Subject.JOB_KINDS: found})


async def _with_query_results(reader: ClusterReader, facts: Facts, rows: Iterable[Query]) -> Facts:
    wanted = [*rows]
    answers = await asyncio.gather(*(reader.read_objects(each) for each in wanted), return_exceptions=True)
    objects, failures = dict[Subject, list[Manifest]](), dict[Subject, NotReadable]()
    for look, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, NotReadable):
            failures[look.subject] = answer.merge(failures.get(look.subject))
        elif isinstance(answer, BaseException):
            raise answer
        elif answer is not None:
            objects[look.subject] = [*objects.get(look.subject, ()), *answer]
    return replace(facts, objects={**facts.objects, **objects}, unseen={**facts.unseen, **failures})


def _build_scheduler_queries(facts: Facts) -> Sequence[Query]:
    mounted = {
        name
        for each in facts.get_objects(Subject.DEPLOYMENTS)
        if _SCHEDULER in deployments.get_name(each) or deployments.has_program(each, _SCHEDULER)
        for name in gang.list_config_maps(each)
    }
    maps = [queries.build_config_map_query(*each) for each in sorted(mounted)]
    return [*maps, *map(queries.build_bound_pod_query, sorted(gang.list_requested_schedulers(facts)))]


def _with_documents(facts: Facts) -> Facts:
    """Return `facts` with Flyte's ConfigMaps replaced by the Flyte configurations in their YAML data."""
    if Subject.FLYTE_CONFIG not in facts.objects:
        return facts
    import yaml

    documents: list[Manifest] = []
    for each in facts.get_objects(Subject.FLYTE_CONFIG):
        for text in get_text_map(each, "data").values():
            with suppress(yaml.YAMLError, ValueError, RecursionError):  # Other files need not be YAML.
                found = yaml.safe_load(text)
                if isinstance(found, Mapping) and {"tasks", "plugins"} & set(found):
                    documents.append(found)
    return replace(facts, objects={**facts.objects, Subject.FLYTE_CONFIG: documents})


async def _with_dry_runs(reader: ClusterReader, facts: Facts) -> Facts:
    """Return `facts` with the replies to dry runs of the job, of an invalid job, and of the pods.

    The operator's webhook must reject the invalid job.
    """
    if not facts.get_objects(Subject.JOB_KINDS):
        return facts
    unseen, replies = dict(facts.unseen), defaultdict[str, list[DryRunReply]](list)
    for name, subject, manifest in _iter_trials(facts):
        try:
            reply = await reader.dry_run_create(manifest, facts.task.dialect)
        except NotReadable as why:
            unseen[subject] = why.merge(unseen.get(subject))
        else:
            replies[name].append(reply)
    # The job and its prerequisites have one name: keep the first rejection, or else the reply to the job.
    chosen = {
        name: next((each for each in several if each.message), several[0])
        for name, several in replies.items()
    }
    return replace(
        facts,
        unseen=unseen,
        job_reply=chosen.pop("job", DryRunReply()),
        invalid_reply=chosen.pop("invalid", DryRunReply()),
        pod_replies=chosen,
    )


def _iter_trials(facts: Facts) -> Iterator[tuple[str, Subject, Manifest]]:
    """Yield three values per dry run: its name, the subject to report if it fails, and the manifest to send.

    The name of a dry run is ``job`` (also for the job's prerequisites), ``invalid`` (a job that the webhook
    must reject), or the replica role of a pod.
    """
    task = facts.task
    for each in (task.plan.job, *task.plan.prerequisites) if task.plan is not None else ():
        yield "job", Subject.JOB_TRIAL, each
    yield "invalid", Subject.INVALID_TRIAL, get_operator(task.dialect).build_invalid_job(facts.namespace)
    for role in task.roles:
        yield role.name, Subject.POD_TRIALS, role.pod
