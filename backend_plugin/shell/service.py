"""The connector service that FlytePropeller calls, on serialized messages.

An error that no retry can fix is returned as a failed task. A gRPC error would use up the task's retries and
hide the message. Background work is in `keeper`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from flyteidl.admin import agent_pb2 as admin
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.message import Message

from backend_plugin.core import job_ref, printable, refusal, signing
from backend_plugin.core.attempts import Superseded
from backend_plugin.core.errors import InvalidTask, Refused, gathered
from backend_plugin.core.job import Dialect, JobRef, OwnerReference, Plan, Run
from backend_plugin.core.job_ref import UnreadableReference
from backend_plugin.core.observed import Job, read_job
from backend_plugin.core.pipeline import plan
from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.shell import answers, create_request, whose
from backend_plugin.shell.allowed import Allowed
from backend_plugin.shell.answers import Answers
from backend_plugin.shell.cache import Cache, Entry
from backend_plugin.shell.cluster import AlreadyExists, Cluster, Misconfigured, Name, NotDurable, Unavailable
from backend_plugin.shell.create_request import CreateRequest
from backend_plugin.shell.credentials import KeyRing
from backend_plugin.shell.findings import NOBODY, Found
from backend_plugin.shell.keeper import Keeper
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.planner import Planner
from backend_plugin.shell.timeouts import timeout

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

NAME: Final = "kfpytorch"
TASK_TYPES: Final = ("pytorch",)
# FlytePropeller uses the last listed version of a task type, and its default connector for the others.
VERSIONS: Final = (0, 1)

_NOT_AUTHENTIC: Final = (
    "the reference is not signed with the keys of this server; give all servers the same signing-keys-file, "
    "and set accept-unsigned: true while tasks of an older server run"
)

# The maximum length of a rejection, which Flyte keeps in the reference, and the maximum size of a reference.
_REFUSAL_CHARACTERS: Final = 10_000
_REFERENCE_BYTES: Final = 64 * 2**10

# FlytePropeller cancels the call after 10 s, and starts another attempt while this one still runs.
_CREATE_SECONDS: Final = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The dependencies of the service."""

    cluster: Cluster
    cache: Cache
    answers: Answers
    keeper: Keeper
    metrics: Metrics
    allowed: Allowed
    ring: KeyRing
    found: Found = NOBODY
    asked: Callable[[Job | None], None] = lambda _: None
    """Called with the job that Flyte requests."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A create call that ended without a job and without a rejection of the task."""

    code: grpc.StatusCode
    message: str
    error: str = ""
    """The error of the cluster for the metric; empty if the cluster is not the cause."""


class TaskService:
    """The calls of `flyteidl.service.AsyncAgentService`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._answers = around.answers
        self._planner = Planner()

    # ---- create

    async def create_task(self, data: bytes, context: Context) -> admin.CreateTaskResponse:
        """Create the job of a serialized request; repeated calls for the same attempt create it only once."""
        request = await self._planner.run(len(data), partial(create_request.read, data))
        run = request.run
        try:
            async with timeout(_CREATE_SECONDS):
                return await self._create(request, len(data))
        except InvalidTask as invalid:
            return self._refused(run, refusal.of_problems(invalid.problems))
        except Refused as refused:
            if not refusal.may_pass(refused.code, refused.message):
                self._around.metrics.cluster_errors.add("create", refused.reason)
                return self._refused(run, refusal.of_cluster(refused.reason, refused.message))
            again = _Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{refused}; retry", refused.reason)
            await self._abort(context, run, again)
        except Superseded as over:
            # No retry fixes this, but FAILED would end the Flyte node together with its later attempt.
            await self._abort(context, run, _Failure(grpc.StatusCode.FAILED_PRECONDITION, str(over)))
        except Unavailable as trouble:
            error = type(trouble).__name__
            again = _Failure(grpc.StatusCode.UNAVAILABLE, f"{trouble}; retry", error)
            await self._abort(context, run, again)
        except asyncio.TimeoutError:
            late = f"the cluster did not answer within {_CREATE_SECONDS:g} s; retry"
            await self._abort(context, run, _Failure(grpc.StatusCode.UNAVAILABLE, late, "Timeout"))

    async def _create(self, request: CreateRequest, size: int) -> admin.CreateTaskResponse:
        """Return the reference to the job, or raise the error that prevents it."""
        around, run = self._around, request.run
        if request.problems:
            raise InvalidTask(*request.problems)
        with gathered() as problems:
            problems.extend([*refusal.of_run(run), *around.allowed.problems(run)])
        pod_templates, owner = await self._there(request.template, run)
        run = replace(run, owner=owner)
        planned = await self._planned(replace(request, run=run), pod_templates, size)
        await around.cache.ready.wait()  # Before this, the cache may lack other attempts.
        around.keeper.replace_earlier(run)
        manifest = signing.sign_job(planned.manifests[0], around.ring.keys)
        last = around.cache.last((run.namespace, text(section(manifest, "metadata"), "name")))
        made, is_new = await self._made(manifest, run)
        job = read_job(made)
        # Update the cache before the next await, because it drops events of jobs that it does not contain.
        around.cache.answered(run.namespace, job, last, is_new=is_new)
        ref = JobRef(
            dialect=Dialect.PYTORCHJOB,
            namespace=run.namespace,
            name=job.name,
            uid=job.uid,
            output_prefix=run.output_prefix,
        )
        try:
            around.keeper.replace_earlier(run)  # A later attempt may have arrived during the request.
        except Superseded:
            await around.keeper.delete(ref)
            raise
        await self._accompany(job, ref, is_new=is_new)
        around.metrics.creates.add("created")
        return admin.CreateTaskResponse(resource_meta=job_ref.encode(ref, self._around.ring.keys))

    async def _planned(self, request: CreateRequest, pod_templates: Sequence[Manifest], size: int) -> Plan:
        """Return the plan; before a rejection, repeat it with current capabilities of the cluster."""
        found, settings, run = self._around.found, self._around.answers.judge.settings, request.run
        make = partial(plan, request.template, run, settings, pod_templates)
        seen = await found.of(run.namespace)
        try:
            planned = await self._planner.run(size, partial(make, seen))
        except InvalidTask:
            newer = await found.anew(run.namespace)
            if newer == seen:
                raise
            planned = await self._planner.run(size, partial(make, newer))
        found.tell(run, planned.reasons)
        for warning in planned.warnings:
            log.warning("task accepted with a warning: %s", warning, extra=whose.of_run(run))
        return planned

    async def _accompany(self, job: Job, ref: JobRef, *, is_new: bool) -> None:
        """Create the companion objects; delete a new job that cannot run without them."""
        try:
            await self._around.keeper.accompany(job)
        except (Refused, Misconfigured) as refused:
            if not is_new:  # The job may already run with companions from an earlier call.
                return
            if isinstance(refused, Misconfigured) or not refusal.may_pass(refused.code, refused.message):
                await self._around.keeper.delete(ref)
            raise

    async def _there(
        self, template: TaskTemplate, run: Run
    ) -> tuple[Sequence[Manifest], OwnerReference | None]:
        """Return the PodTemplates that the task may use, and the owner of the job."""
        settings = self._around.answers.judge.settings
        wanted = template.metadata.pod_template_name or settings.default_pod_template_name
        owner = self._around.cluster.owner(run.namespace, run.execution)
        if not wanted:
            return (), await owner
        places = dict.fromkeys((run.namespace, settings.kfpytorch.pod_template_namespace))
        return await asyncio.gather(self._around.cluster.pod_templates([*places], wanted), owner)

    async def _made(self, manifest: Manifest, run: Run) -> tuple[Manifest, bool]:
        """Create the job; return it, and False if an earlier call for the same attempt has created it."""
        cluster, name = self._around.cluster, text(section(manifest, "metadata"), "name")
        try:
            made = await cluster.create(manifest)
        except AlreadyExists:
            there = await cluster.get(Name(namespace=run.namespace, name=name))
            # The job was deleted between the two requests, or is being deleted.
            if there is None or read_job(there).deleting:
                raise Unavailable(f"job {name} is being deleted") from None
            refusal.unless_for(run, there)
            log.info("adopted", extra=whose.of_run(run, name))
            return there, False
        log.info("created", extra=whose.of_run(run, name))
        return made, True

    def _refused(self, run: Run, message: str) -> admin.CreateTaskResponse:
        self._around.metrics.creates.add("refused")
        message = message[:_REFUSAL_CHARACTERS]
        log.warning("refused: %s", message.replace("\n", "; "), extra=whose.of_run(run))
        ref = JobRef(
            dialect=Dialect.PYTORCHJOB,
            # A long namespace must not make the reference too long as well.
            namespace=run.namespace[: refusal.LONGEST_NAMESPACE],
            name="",
            output_prefix=run.output_prefix,
            refusal=message,
        )
        return admin.CreateTaskResponse(resource_meta=job_ref.encode(ref, self._around.ring.keys))

    async def _abort(self, context: Context, run: Run, failure: "_Failure") -> NoReturn:
        """Log and count a create call that may be retried, and end the call with its error."""
        self._around.metrics.creates.add(failure.code.name.lower())
        if failure.error:
            self._around.metrics.cluster_errors.add("create", failure.error)
        message = printable.escape(failure.message)
        log.warning("not created (%s): %s", failure.code.name, message, extra=whose.of_run(run))
        await context.abort(failure.code, f"the job could not be created: {message}")

    # ---- get

    async def get_task(self, request: admin.GetTaskRequest, context: Context) -> bytes:
        """Return the verdict of a job from the cache."""
        ref = await self._served(request.resource_meta, context)
        if ref.refusal is not None:
            return self._answers.of_refusal(ref.refusal)
        entry = await self._known(ref)
        if entry is None or (entry.job is None and entry.gone is None):
            self._around.keeper.look_for(ref)
            return self._answers.of_unseen()
        if _is_of_another(entry, ref):
            return self._answers.of_refusal(f"job {ref.namespace}/{ref.name} belongs to another attempt")
        self._around.asked(entry.job)
        try:
            answer = self._answers.of(entry)
        except Exception:
            # A defect in the judgement of an unexpected object must not fail the task; FlytePropeller fails a
            # task after six errors.
            log.exception("internal error: cannot compute the phase of a job", extra=whose.of_entry(entry))
            return self._answers.last(entry)
        self._around.metrics.phases.add(answer.phase.value)
        if answer.phase is not entry.told:
            self._around.keeper.see(entry)  # A timeout may have expired just now.
        return answer.message

    # ---- delete

    async def delete_task(
        self, request: admin.DeleteTaskRequest, context: Context
    ) -> admin.DeleteTaskResponse:
        """Accept the deletion, which may finish after the response; fails if it cannot be stored durably."""
        ref = await self._ref(request.resource_meta, context)
        entry = await self._known(ref)
        if entry is not None and _is_of_another(entry, ref):
            log.warning("not deleted: %s/%s belongs to another attempt", ref.namespace, ref.name)
        elif not self._around.allowed.serves(ref.namespace):
            log.warning("not deleted: %s is a namespace that this connector does not serve", ref.namespace)
        elif ref.refusal is None:
            try:
                await self._around.keeper.delete(ref)
            except NotDurable as error:
                again = f"the job could not be deleted: {error}; retry"
                await context.abort(grpc.StatusCode.UNAVAILABLE, again)
        return admin.DeleteTaskResponse()

    # ---- logs and metrics

    async def get_task_logs(
        self, request: admin.GetTaskLogsRequest, context: Context
    ) -> AsyncIterator[admin.GetTaskLogsResponse]:
        """Yield the last lines of every replica, each with the replica's name."""
        ref = await self._served(request.resource_meta, context)
        entry = await self._known(ref)
        pods = entry.replicas if entry is not None and not _is_of_another(entry, ref) else ()
        async for lines in answers.last_lines(self._around.cluster, ref.namespace, pods, request.lines):
            yield admin.GetTaskLogsResponse(body=admin.GetTaskLogsResponseBody(results=lines))

    async def get_task_metrics(
        self, request: admin.GetTaskMetricsRequest, context: Context
    ) -> admin.GetTaskMetricsResponse:
        """Return the current numbers of replicas of a job."""
        ref = await self._served(request.resource_meta, context)
        entry = await self._known(ref)
        mine = entry is not None and not _is_of_another(entry, ref)
        verdict = self._around.answers.judge.phase(entry) if mine and entry is not None else None
        try:
            return answers.metrics(request.queries, verdict)
        except answers.UnknownQuery as unknown:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(unknown))

    async def _known(self, ref: JobRef) -> Entry | None:
        """Return the cache entry of the job."""
        return self._around.cache.of((ref.namespace, ref.name))

    async def _served(self, data: bytes, context: Context) -> JobRef:
        """Return the reference; end the call if its namespace or output prefix is not allowed."""
        ref = await self._ref(data, context)
        why = self._around.allowed.why_not(ref.namespace, ref.output_prefix)
        if ref.refusal is None and why is not None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"resource_meta: {why}")
        return ref

    async def _ref(self, data: bytes, context: Context) -> JobRef:
        """Return the reference; end the call if it was not signed with our keys."""
        if len(data) > _REFERENCE_BYTES:
            larger = f"{len(data):,} bytes are more than the limit of {_REFERENCE_BYTES:,} bytes"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"resource_meta: {larger}")
        try:
            ref = job_ref.decode(data)
        except UnreadableReference as unreadable:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"resource_meta: {unreadable}")
        if not job_ref.is_authentic(data, self._around.ring.keys):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"resource_meta: {_NOT_AUTHENTIC}")
        return ref


def _is_of_another(entry: Entry, ref: JobRef) -> bool:
    """True if the reference is not for the cached job of this name, for example if a client made it up."""
    return entry.output_prefix not in ("", ref.output_prefix)


class MetadataService:
    """The calls of `flyteidl.service.AgentMetadataService`, which list the supported task types."""

    _AGENT: Final = admin.Agent(
        name=NAME,
        supported_task_types=TASK_TYPES,
        supported_task_categories=[
            admin.TaskCategory(name=name, version=version) for name in TASK_TYPES for version in VERSIONS
        ],
    )

    async def get_agent(self, request: admin.GetAgentRequest, context: Context) -> admin.GetAgentResponse:
        """Return this connector if it is requested by its name."""
        if request.name != NAME:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no agent {request.name[:80]!r} here; the only agent is {NAME!r}"
            )
        return admin.GetAgentResponse(agent=self._AGENT)

    async def list_agents(self, _: admin.ListAgentsRequest, __: Context) -> admin.ListAgentsResponse:
        """Return this connector as the only one."""
        return admin.ListAgentsResponse(agents=[self._AGENT])


def handlers(tasks: TaskService) -> Sequence["grpc.GenericRpcHandler[Any, Any]"]:
    """Return the gRPC handlers of both services."""
    listed = MetadataService()
    return (
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AsyncAgentService",
            {
                "CreateTask": grpc.unary_unary_rpc_method_handler(
                    tasks.create_task, response_serializer=_serialized
                ),
                "GetTask": _unary(tasks.get_task, admin.GetTaskRequest),
                "DeleteTask": _unary(tasks.delete_task, admin.DeleteTaskRequest),
                "GetTaskMetrics": _unary(tasks.get_task_metrics, admin.GetTaskMetricsRequest),
                "GetTaskLogs": grpc.unary_stream_rpc_method_handler(
                    tasks.get_task_logs, admin.GetTaskLogsRequest.FromString, _serialized
                ),
            },
        ),
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AgentMetadataService",
            {
                "GetAgent": _unary(listed.get_agent, admin.GetAgentRequest),
                "ListAgents": _unary(listed.list_agents, admin.ListAgentsRequest),
            },
        ),
    )


def _unary(call: Callable[..., object], request: type[Message]) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(call, request.FromString, _serialized)


def _serialized(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()
