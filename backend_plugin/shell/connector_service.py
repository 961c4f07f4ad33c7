"""The connector service that FlytePropeller calls, and its gRPC handlers.

An error that no retry can fix is returned as a failed task. A gRPC error would use up the task's retries and
hide the message. CreateTask returns a reference to the job (`resource_meta`), which Flyte sends with later
calls. Background work is in `reconciler`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2 as admin

from backend_plugin.core import job_ref, printable, rejection
from backend_plugin.core.dialects import table
from backend_plugin.core.errors import AttemptSuperseded, InvalidTask, RequestRejected, collect_problems
from backend_plugin.core.job import Attempt, JobRef
from backend_plugin.core.job_ref import UnreadableReference
from backend_plugin.core.names import TASK_TYPE
from backend_plugin.core.observed import Job
from backend_plugin.core.signing import SigningKeys
from backend_plugin.shell import create_request, task_responses
from backend_plugin.shell.allowlist import Allowlist
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob
from backend_plugin.shell.capabilities_cache import NO_CAPABILITIES, CapabilitiesCache
from backend_plugin.shell.cluster import Cluster, ClusterUnavailable, NotDurable
from backend_plugin.shell.create_request import CreateRequest
from backend_plugin.shell.credentials import KeyRing
from backend_plugin.shell.job_creator import JobCreator
from backend_plugin.shell.logging_setup import build_attempt_fields
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.reconciler import Reconciler
from backend_plugin.shell.rpc_handlers import CallFailed, build_stream_handler, build_unary_handler
from backend_plugin.shell.task_creator import TaskCreator
from backend_plugin.shell.task_responses import TaskResponses
from backend_plugin.shell.together import timeout

log = logging.getLogger(__name__)

_NOT_AUTHENTIC: Final = (
    "the reference is not signed with the keys of this server; give all servers the same signing-keys-file, "
    "and set accept-unsigned: true while tasks of an older server run"
)

# The maximum length of a rejection, which Flyte keeps in the reference, and the maximum size of a reference.
_REFUSAL_CHARACTERS: Final = 10_000
_REFERENCE_BYTES: Final = 64 * 2**10

# The maximum number of verified references that are kept, and the maximum size of each. References have about
# 250 bytes, so that 20,000 of them take 16 MB.
_MOST_SERVED: Final = 20_000
_SERVED_BYTES: Final = 1_000

# FlytePropeller cancels the call after 10 s, and starts another attempt while this one still runs.
_CREATE_SECONDS: Final = 7.0


@dataclass(slots=True, kw_only=True)
class ConnectorService:
    """The gRPC service `flyteidl.service.AsyncAgentService`: creates, reads and deletes the jobs of tasks.

    Each call raises `CallFailed` if it ends with an error status.
    """

    cluster: Cluster
    cache: Cache
    answers: TaskResponses
    reconciler: Reconciler
    metrics: Metrics
    allowed: Allowlist
    ring: KeyRing
    found: CapabilitiesCache = NO_CAPABILITIES
    on_request: Callable[[Job | None], None] = lambda _: None
    """Called with the job of each GetTask call."""
    _creator: TaskCreator = field(init=False)
    _require_served_short: Callable[[bytes, SigningKeys], JobRef] = field(init=False)
    """The function `_require_served`, with a cache for short references."""

    def __post_init__(self) -> None:
        # FlytePropeller sends the same reference with each call, and verification is slow.
        self._require_served_short = lru_cache(_MOST_SERVED)(self._require_served)
        self._creator = TaskCreator(
            cluster=self.cluster,
            cache=self.cache,
            settings=self.answers.judge.settings,
            reconciler=self.reconciler,
            found=self.found,
            jobs=JobCreator(self.cluster, self.cache, self.found, self.ring),
        )

    # ---- create

    async def create_task(self, data: bytes) -> admin.CreateTaskResponse:
        """Create the job of a serialized CreateTask request; repeated calls for an attempt create it once."""
        request = await self._creator.planner.run(len(data), partial(create_request.parse_request, data))
        run = request.run
        try:
            async with timeout(_CREATE_SECONDS):
                return await self._create_job(request, len(data))
        except InvalidTask as invalid:
            return self._reject_task(run, rejection.format_problems(invalid.problems))
        except RequestRejected as refused:
            if not rejection.is_transient(refused.code, refused.message):
                self.metrics.cluster_errors.add("create_job", refused.reason)
                return self._reject_task(
                    run, rejection.format_cluster_rejection(refused.reason, refused.message)
                )
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise self._record_create_failure(run, code, f"{refused}; retry", refused.reason) from refused
        except AttemptSuperseded as over:
            # No retry fixes this. But the phase FAILED would end the Flyte node, and so its later attempt.
            raise self._record_create_failure(run, grpc.StatusCode.FAILED_PRECONDITION, str(over)) from over
        except ClusterUnavailable as error:
            code, kind = grpc.StatusCode.UNAVAILABLE, type(error).__name__
            raise self._record_create_failure(run, code, f"{error}; retry", kind) from error
        except asyncio.TimeoutError as late:
            missing = self.cache.describe_incompleteness()
            why = missing or f"the cluster did not answer within {_CREATE_SECONDS:g} s"
            code = grpc.StatusCode.UNAVAILABLE
            raise self._record_create_failure(run, code, f"{why}; retry", "Timeout") from late

    async def _create_job(self, request: CreateRequest, size: int) -> admin.CreateTaskResponse:
        run = request.run
        if request.problems:
            raise InvalidTask(*request.problems)
        with collect_problems() as problems:
            problems.extend([*rejection.check_attempt_fields(run), *self.allowed.check_attempt(run)])
        ref = await self._creator.create(request, size)
        self.metrics.creates.add("created")
        return admin.CreateTaskResponse(resource_meta=job_ref.encode(ref, self.ring.current))

    def _reject_task(self, run: Attempt, message: str) -> admin.CreateTaskResponse:
        self.metrics.creates.add("rejected")
        message = message[:_REFUSAL_CHARACTERS]
        log.warning("refused: %s", message.replace("\n", "; "), extra=build_attempt_fields(run))
        ref = JobRef(
            dialect=table.DEFAULT.name,
            # A long namespace must not make the reference too large.
            namespace=run.namespace[: rejection.LONGEST_NAMESPACE],
            name="",
            output_prefix=run.output_prefix,
            refusal=message,
        )
        return admin.CreateTaskResponse(resource_meta=job_ref.encode(ref, self.ring.current))

    def _record_create_failure(
        self, run: Attempt, code: grpc.StatusCode, details: str, cluster_error: str = ""
    ) -> CallFailed:
        """Log and count a failed creation, and return the error with which the call ends.

        `cluster_error` names the error of the cluster that caused the failure; empty if there is none.
        """
        self.metrics.creates.add(code.name.lower())
        if cluster_error:
            self.metrics.cluster_errors.add("create_job", cluster_error)
        message = printable.escape(details)
        log.warning("not created (%s): %s", code.name, message, extra=build_attempt_fields(run))
        return CallFailed(code, f"the job could not be created: {message}")

    # ---- get

    async def get_task(self, request: admin.GetTaskRequest) -> bytes:
        """Return a serialized `GetTaskResponse` with the phase of a job, which is computed from the cache."""
        ref = self._get_served_reference(request.resource_meta)
        if ref.refusal is not None:
            return _encode_rejection(ref.refusal)
        entry = self.cache.get((ref.namespace, ref.name))
        if entry is None or not entry.is_observed:
            self.reconciler.fetch_missing_job(ref)
            return task_responses.NOT_SYNCED
        if _is_other_attempt(entry, ref):
            return _encode_rejection(f"job {ref.namespace}/{ref.name} belongs to another attempt")
        self.on_request(entry.job)
        return self._judge_entry(entry)

    def _judge_entry(self, entry: CachedJob) -> bytes:
        try:
            answer = self.answers.get_response(entry)
        except Exception:
            # A defect in the judgement of an unexpected object must not fail the task; FlytePropeller fails a
            # task after six errors.
            log.exception("internal error: cannot compute the phase of a job", extra=entry.log_fields)
            return task_responses.NOT_SYNCED if entry.answer is None else entry.answer.message
        self.metrics.phases.add(answer.phase.value)
        if answer.phase is not entry.logged_phase:
            self.reconciler.enqueue(entry)  # A timeout may have expired since the last reconciliation.
        return answer.message

    # ---- delete

    async def delete_task(self, request: admin.DeleteTaskRequest) -> admin.DeleteTaskResponse:
        """Start to delete a job; raise `CallFailed` if the cluster cannot store the deletion durably."""
        ref = self._decode_reference(request.resource_meta, self.ring.current)
        entry = self.cache.get((ref.namespace, ref.name))
        if entry is not None and _is_other_attempt(entry, ref):
            log.warning("not deleted: %s/%s belongs to another attempt", ref.namespace, ref.name)
        elif not self.allowed.is_served(ref.namespace):
            log.warning("not deleted: %s is a namespace that this connector does not serve", ref.namespace)
        elif ref.refusal is None:
            try:
                await self.reconciler.deleter.delete(ref)
            except NotDurable as error:
                again = f"the job could not be deleted: {error}; retry"
                raise CallFailed(grpc.StatusCode.UNAVAILABLE, again) from error
        return admin.DeleteTaskResponse()

    # ---- logs

    async def get_task_logs(
        self, request: admin.GetTaskLogsRequest
    ) -> AsyncGenerator[admin.GetTaskLogsResponse, None]:
        """Yield the last log lines of every replica, with the name of the replica before each line."""
        ref = self._get_served_reference(request.resource_meta)
        entry = self.cache.get((ref.namespace, ref.name))
        pods = entry.replicas if entry is not None and not _is_other_attempt(entry, ref) else ()
        async for lines in task_responses.read_last_lines(self.cluster, ref.namespace, pods, request.lines):
            yield admin.GetTaskLogsResponse(body=admin.GetTaskLogsResponseBody(results=lines))

    def _get_served_reference(self, data: bytes) -> JobRef:
        require = self._require_served_short if len(data) <= _SERVED_BYTES else self._require_served
        return require(data, self.ring.current)

    def _require_served(self, data: bytes, keys: SigningKeys) -> JobRef:
        """Return the job reference in `data`; raise `CallFailed` if it has a forbidden namespace or prefix.

        The prefix is the output prefix of the task. The reference that CreateTask returned for a rejected
        task is always accepted, because it names no job.
        """
        ref = self._decode_reference(data, keys)
        if ref.refusal is None:
            why = self.allowed.find_rejection_reason(ref.namespace, ref.output_prefix)
            if why is not None:
                raise CallFailed(grpc.StatusCode.PERMISSION_DENIED, f"resource_meta: {why}")
        return ref

    def _decode_reference(self, data: bytes, keys: SigningKeys) -> JobRef:
        """Return the job reference in `data`; raise `CallFailed` if it is too large, invalid or forged."""
        if len(data) > _REFERENCE_BYTES:
            larger = f"{len(data):,} bytes are more than the limit of {_REFERENCE_BYTES:,} bytes"
            raise CallFailed(grpc.StatusCode.INVALID_ARGUMENT, f"resource_meta: {larger}")
        try:
            ref = job_ref.decode(data)
        except UnreadableReference as unreadable:
            raise CallFailed(grpc.StatusCode.INVALID_ARGUMENT, f"resource_meta: {unreadable}") from unreadable
        if not job_ref.is_authentic(data, keys):
            raise CallFailed(grpc.StatusCode.PERMISSION_DENIED, f"resource_meta: {_NOT_AUTHENTIC}")
        return ref


def _encode_rejection(message: str) -> bytes:
    return task_responses.encode_verdict(rejection.build_verdict(message))


def _is_other_attempt(entry: CachedJob, ref: JobRef) -> bool:
    return entry.output_prefix not in ("", ref.output_prefix)


NAME: Final = "kfpytorch"
TASK_TYPES: Final = (TASK_TYPE,)
# FlytePropeller uses the last listed version of a task type, and its default connector for other versions.
VERSIONS: Final = (0, 1)
_AGENT: Final = admin.Agent(
    name=NAME,
    supported_task_types=TASK_TYPES,
    supported_task_categories=[
        admin.TaskCategory(name=name, version=version) for name in TASK_TYPES for version in VERSIONS
    ],
)


async def _get_agent(request: admin.GetAgentRequest) -> admin.GetAgentResponse:
    """Return the description of this connector; raise `CallFailed` (NOT_FOUND) for another name."""
    if request.name != NAME:
        raise CallFailed(
            grpc.StatusCode.NOT_FOUND, f"no agent {request.name[:80]!r} here; the only agent is {NAME!r}"
        )
    return admin.GetAgentResponse(agent=_AGENT)


async def _list_agents(_: admin.ListAgentsRequest) -> admin.ListAgentsResponse:
    return admin.ListAgentsResponse(agents=[_AGENT])


def build_handlers(tasks: ConnectorService) -> Sequence["grpc.GenericRpcHandler[Any, Any]"]:
    """Return the gRPC handlers of the connector service, and of the service that lists the task types."""
    return (
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AsyncAgentService",
            {
                "CreateTask": build_unary_handler(tasks.create_task, None),
                "GetTask": build_unary_handler(tasks.get_task, admin.GetTaskRequest),
                "DeleteTask": build_unary_handler(tasks.delete_task, admin.DeleteTaskRequest),
                "GetTaskLogs": build_stream_handler(tasks.get_task_logs, admin.GetTaskLogsRequest),
            },
        ),
        grpc.method_handlers_generic_handler(
            "flyteidl.service.AgentMetadataService",
            {
                "GetAgent": build_unary_handler(_get_agent, admin.GetAgentRequest),
                "ListAgents": build_unary_handler(_list_agents, admin.ListAgentsRequest),
            },
        ),
    )
