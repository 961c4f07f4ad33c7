"""Collects the facts of a cluster with the permissions of the user."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.connection import Server
from backend_plugin.core import custom
from backend_plugin.core.errors import BackendError, InvalidTask
from backend_plugin.core.errors import gathered as gathered_problems
from backend_plugin.core.job import Run
from backend_plugin.core.pipeline import plan
from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.scheduling.findings import NOTHING, Findings
from backend_plugin.core.scheduling.operated import OPERATOR
from backend_plugin.core.scheduling.selection import select
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, looks, outside, pods, probe, rights
from backend_plugin.doctor.asking import Asking, NotSeen
from backend_plugin.doctor.checks import templates
from backend_plugin.doctor.checks.gang import wanted
from backend_plugin.doctor.facts import Facts, Reply, Subject, Task, Unseen
from backend_plugin.doctor.looks import Look
from backend_plugin.kube import clock, credentials
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.findings import Looking
from backend_plugin.kube.kinds import JOBS, PODS
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions
from backend_plugin.shell.cluster import Unavailable

_SCHEDULER: Final = "scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The task to check, and the options of the observation."""

    template: TaskTemplate
    """The task template, with its arguments filled in."""
    run: Run
    """The attempt to plan for; its namespace is the observed one."""
    named: bool
    """True if the user named the task; False for the default task."""
    settings: Settings = field(default_factory=Settings)
    flyte_namespace: str = "flyte"
    output_prefixes: Sequence[str] = ()
    read_only: bool = False
    """True if the test must not write to the output prefixes."""
    release: str = ""
    """The release of this program."""
    connector: Server | None = None
    """The connector to test, with the caller's credentials."""


async def gathered(options: KubernetesOptions, wish: Wish) -> Facts:
    """Return all observable facts. Errors of the cluster are recorded in the facts and not raised."""
    facts = Facts(
        namespace=wish.run.namespace,
        flyte_namespace=wish.flyte_namespace,
        settings=wish.settings,
        release=wish.release,
    )
    try:
        async with AsyncExitStack() as undo:
            connection = Connection(credentials.choose(options))
            undo.push_async_callback(connection.close)
            await connection.open()
            found = await _asked(connection, options, wish, facts)
    except credentials.CredentialsUnusable as unusable:
        # The messages of this error end with a remedy, and the text before it may contain a semicolon.
        said, _, remedy = str(unusable).rpartition("; ")
        return replace(facts, unreachable=said, unreachable_remedy=remedy)
    except (Answered, BackendError) as trouble:
        return replace(facts, unreachable=str(trouble))
    return await outside.tried(found, wish.output_prefixes, wish.connector, read_only=wish.read_only)


async def _asked(connection: Connection, options: KubernetesOptions, wish: Wish, facts: Facts) -> Facts:
    api = Api(connection, options.patience)
    version = await api.object(Question(path="/version"))
    groups = entries(await api.object(Question(path="/apis")), "groups")
    preferred = {text(each, "name"): text(section(each, "preferredVersion"), "version") for each in groups}
    facts = replace(
        facts,
        version=text(version, "gitVersion"),
        ahead=connection.clock.now() - clock.ours(),
        now=connection.clock.now(),
        seen={Subject.GROUPS: groups},
    )
    asking, looking = Asking(api, preferred), Looking(api, Permissions(), options)
    facts = await _kinds(api, facts)
    platform = wish.settings.kfpytorch
    rows = looks.always(facts.namespace, facts.flyte_namespace, platform.pod_template_namespace)
    facts = _with_documents(await _looked(asking, facts, rows))
    facts = _planned(wish, facts, await _found(looking, wish))
    rows = (*_about_schedulers(facts), *looks.of_gang(facts.gang.scheduler, facts.namespace))
    facts = await _looked(asking, facts, rows)
    return await _tried(asking, await _with_rights(api, facts))


async def _kinds(api: Api, facts: Facts) -> Facts:
    """Add the kinds of kubeflow.org from API discovery, which needs no special permission."""
    try:
        found = entries(await api.object(Question(path=f"/apis/{JOBS.group}/{JOBS.version}")), "resources")
    except Answered as answer:
        if not answer.is_not_served:
            raise
        found = []
    return replace(facts, seen={**facts.seen, Subject.JOB_KINDS: found})


async def _looked(asking: Asking, facts: Facts, rows: Iterable[Look]) -> Facts:
    """Add the results of these requests, which run concurrently."""
    wanted = [*rows]
    answers = await asyncio.gather(*(asking.look(each) for each in wanted), return_exceptions=True)
    seen, unseen = dict[Subject, list[Manifest]](), dict[Subject, Unseen]()
    for look, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, NotSeen):
            unseen[look.subject] = answer.unseen
        elif isinstance(answer, BaseException):
            raise answer
        elif answer is not None:
            seen[look.subject] = [*seen.get(look.subject, ()), *answer]
    return replace(facts, seen={**facts.seen, **seen}, unseen={**facts.unseen, **unseen})


async def _found(looking: Looking, wish: Wish) -> Findings:
    """Return the capabilities for gangs. Errors are ignored, because the requests in `looks` report them."""
    if wish.settings.kfpytorch.gang.is_silent:
        return NOTHING
    try:
        return await looking.look(wish.run.namespace, tries_pod=wish.settings.kfpytorch.gang.is_found)
    except Unavailable:
        return NOTHING


def _planned(wish: Wish, facts: Facts, found: Findings) -> Facts:
    name = wish.template.id.name if wish.named else ""
    template = wish.template.metadata.pod_template_name
    # The items of a list have no kind, but the planner recognizes a PodTemplate by its kind.
    known = [{**each, "apiVersion": "v1", "kind": "PodTemplate"} for each in facts.of(Subject.TEMPLATES)]
    gang = wish.settings.kfpytorch.gang
    try:
        with gathered_problems() as problems:
            said = custom.decode(wish.template, wish.run, problems)
        chosen = select(gang, said, found)
        misfits = chosen.problems
        if misfits:  # The other checks assume that the cluster supports the settings.
            found, chosen = NOTHING, select(gang, said, NOTHING)
        planned = plan(wish.template, wish.run, wish.settings, known, found)
    except InvalidTask as refusal:
        return replace(facts, task=Task(name=name, template=template, problems=refusal.problems), gang=gang)
    job, *beside = planned.manifests
    gang, adapter = chosen.gang, chosen.gang.adapter
    by_operator = gang.scheduler_name or adapter.scheduler_name if adapter and gang.style == OPERATOR else ""
    task = Task(name=name, template=template, job=job, beside=beside, roles=pods.of(job, by_operator))
    return replace(facts, task=task, gang=gang, gang_reasons=planned.reasons, gang_problems=tuple(misfits))


async def _with_rights(api: Api, facts: Facts) -> Facts:
    try:
        return replace(facts, lacking=await rights.lacking(api, facts))
    except NotSeen as why:
        return replace(facts, unseen={**facts.unseen, Subject.RIGHTS: why.unseen})


def _about_schedulers(facts: Facts) -> Sequence[Look]:
    """Return the requests for the schedulers' configurations, and for one bound pod of each scheduler."""
    mounted = {
        (deployments.namespace(each), text(section(volume, "configMap"), "name"))
        for each in facts.of(Subject.DEPLOYMENTS)
        if _SCHEDULER in deployments.name(each) or deployments.runs(each, _SCHEDULER)
        for volume in entries(section(each, "spec", "template", "spec"), "volumes")
    }
    maps = [looks.config_map(namespace, name) for namespace, name in sorted(mounted) if name]
    return [*maps, *map(looks.bound, sorted(wanted(facts) | templates.scheduler_names(facts)))]


def _with_documents(facts: Facts) -> Facts:
    """Replace the ConfigMaps of Flyte with the configuration documents that they contain as text."""
    if Subject.FLYTE_CONFIG not in facts.seen:
        return facts
    documents = [
        document
        for each in facts.of(Subject.FLYTE_CONFIG)
        for said in section(each, "data").values()
        for document in _documents(said)
    ]
    return replace(facts, seen={**facts.seen, Subject.FLYTE_CONFIG: documents})


def _documents(said: Any) -> list[Manifest]:
    """Return the parsed text if it can be a part of Flyte's configuration."""
    import yaml

    try:
        found = yaml.safe_load(said) if isinstance(said, str) else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return [found] if isinstance(found, Mapping) and {"tasks", "plugins"} & set(found) else []


async def _tried(asking: Asking, facts: Facts) -> Facts:
    """Add the dry runs of the job, of a job that the webhook must reject, and of the job's pods."""
    if not facts.of(Subject.JOB_KINDS):
        return facts
    unseen, replies = dict(facts.unseen), dict[str, Reply]()
    trials = [("job", Subject.JOB_TRIAL, JOBS, facts.task.job)]
    trials.append(("invalid", Subject.INVALID_TRIAL, JOBS, probe.invalid(facts.namespace)))
    trials += [(role.name, Subject.POD_TRIALS, PODS, role.pod) for role in facts.task.roles]
    for name, subject, resource, manifest in trials:
        if manifest is None:
            continue
        try:
            replies[name] = await asking.trial(resource, manifest)
        except NotSeen as why:
            unseen[subject] = why.unseen
    return replace(
        facts,
        unseen=unseen,
        job_reply=replies.pop("job", Reply()),
        invalid_reply=replies.pop("invalid", Reply()),
        pod_replies=replies,
    )
