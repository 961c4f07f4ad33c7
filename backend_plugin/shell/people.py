"""The gRPC job service behind the user commands: `kfpytorch_idl.v1.People`.

Jobs are read from the cache; logs and changes go to the cluster.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from backend_plugin.core import lookup, turns, upkeep
from backend_plugin.core.errors import BackendError, Refused
from backend_plugin.core.observed import Job
from backend_plugin.core.values import Manifest
from backend_plugin.shell import job_logs, people_records, people_watch
from backend_plugin.shell.cache import Cache, Entry
from backend_plugin.shell.cluster import Cluster, Name, Unavailable
from backend_plugin.shell.judge import Judge
from backend_plugin.shell.verdicts import Verdicts
from kfpytorch_idl.v1 import people_pb2 as wire

log = logging.getLogger(__name__)

SERVICE: Final = wire.DESCRIPTOR.services_by_name["People"].full_name


class NotOffered(BackendError):
    """The cluster does not support this operation."""


class Nodes(Protocol):
    """A cluster with controllable nodes. Its methods raise `Refused` if the node does not exist."""

    async def nodes(self) -> Sequence[Manifest]:
        """Return the core/v1 manifest of every node."""

    async def lose(self, node: str) -> None:
        """Kill all pods of a node, as a power failure does."""

    async def drain(self, node: str) -> None:
        """Evict the pods of a node, and accept no new ones."""

    async def restore(self, node: str) -> None:
        """Let a node accept pods again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The calls of the job service."""

    cache: Cache
    judge: Judge
    cluster: Cluster
    verdicts: Verdicts
    nodes: Nodes | None = None
    """None unless the cluster is embedded."""
    serves: Callable[[str], bool] = lambda _: True
    """True for the namespaces whose jobs are visible."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lock by which calls that return many jobs alternate."""

    # ---- queries

    async def list_jobs(self, request: wire.ListJobsRequest) -> AsyncGenerator[wire.ListJobsResponse, None]:
        """Yield all jobs in batches, the newest first."""
        found = [entry for entry in self.cache if self._is_in(entry, request)]
        newest_first = sorted(found, key=people_watch.age, reverse=True)
        tell = self._full if request.details else self._summary
        async for jobs in people_watch.in_turn(self.turn, newest_first, tell):
            yield wire.ListJobsResponse(
                jobs=[job for job in jobs if not request.living or job.flyte.phase not in people_watch.ENDS]
            )

    async def get_job(self, request: wire.GetJobRequest) -> wire.Job:
        """Return one job with its replicas and events."""
        return self._full(self._meant(request))

    async def watch_jobs(self, request: wire.WatchJobsRequest) -> AsyncGenerator[wire.JobChange, None]:
        """Yield the current jobs, then every change; for a single job, until it has ended."""
        if request.HasField("name"):
            changes = people_watch.one(self._meant(request), self.cache, self._full)
        else:
            watched = people_watch.Watched(
                cache=self.cache,
                belongs=lambda entry: self._is_in(entry, request),
                tell=self._full if request.details else self._summary,
                living=request.living,
                turn=self.turn,
            )
            changes = people_watch.everything(watched)
        async with aclosing(changes):
            async for change in changes:
                yield change

    async def read_logs(self, request: wire.ReadLogsRequest) -> AsyncGenerator[wire.LogLines, None]:
        """Yield log lines of the replicas of a job."""
        entry = self._meant(request)
        rank, replica, tail = (
            getattr(request, key) if request.HasField(key) else None for key in ("rank", "replica", "tail")
        )
        replicas, mark = job_logs.replicas_wanted(_job(entry), rank, replica)
        wanted = job_logs.Wanted(
            replicas=replicas, mark=mark, follow=request.follow, tail=tail, previous=request.previous
        )
        batches = job_logs.lines(entry, self.cluster, wanted, lambda: self._is_over(entry))
        async with aclosing(batches):
            async for batch in batches:
                lines = (wire.LogLine(replica=who, time=line.time, text=line.text) for who, line in batch)
                yield wire.LogLines(lines=lines)

    # ---- changes

    async def cancel_job(self, request: wire.CancelJobRequest) -> wire.CancelJobResponse:
        """End a job permanently, and store the reason on it."""
        entry = self._meant(request)
        job = _job(entry)
        now, before = self.judge.now(), self._full(entry)
        duties = upkeep.cancel(entry.observed(), request.reason, now)
        name = Name(namespace=entry.namespace, name=entry.name, uid=job.uid or None)
        phase = before.flyte.phase
        if duties.patch is None or not await self.verdicts.store(name, duties.patch, awaited=True):
            return wire.CancelJobResponse(job=before, was_over=True, phase_before=phase)
        verdict = upkeep.build_cancellation(request.reason)
        # The operator's own event names the deadline with which the job is ended.
        try:
            await self.cluster.record(turns.build_event(job, verdict.reason, verdict, now, since=now))
        except BackendError as error:
            log.info("the event on the cancelled job %s is not written: %s", job.name, error)
        # The watch has perhaps not delivered the patched job.
        after = people_records.full(job, entry.observed(), verdict)
        return wire.CancelJobResponse(job=after, phase_before=phase)

    async def list_nodes(self, request: wire.ListNodesRequest) -> wire.ListNodesResponse:  # noqa: ARG002
        """Return the nodes of an embedded cluster."""
        return wire.ListNodesResponse(nodes=[self._node(each) for each in await self._nodes().nodes()])

    async def set_node(self, request: wire.SetNodeRequest) -> wire.Node:
        """Fail, drain or restore a node."""
        nodes = self._nodes()
        change = {
            wire.NODE_STATE_LOST: nodes.lose,
            wire.NODE_STATE_DRAINED: nodes.drain,
            wire.NODE_STATE_READY: nodes.restore,
        }.get(request.state)
        if change is None:
            raise Refused(
                HTTPStatus.BAD_REQUEST, "BadRequest", "a node can only become lost, drained or ready"
            )
        await change(request.name)
        made = [self._node(each) for each in await nodes.nodes()]
        return next(node for node in made if node.name == request.name)

    # ---- helpers

    def _meant(
        self,
        request: wire.GetJobRequest | wire.WatchJobsRequest | wire.ReadLogsRequest | wire.CancelJobRequest,
    ) -> Entry:
        word = f"{request.namespace}/{request.name}" if request.HasField("namespace") else request.name
        shown = [entry for entry in self.cache if entry.job is not None and self.serves(entry.namespace)]
        return lookup.meant(word, shown)

    def _is_in(self, entry: Entry, request: wire.ListJobsRequest | wire.WatchJobsRequest) -> bool:
        """True if the job exists in a served namespace that matches the request."""
        there = entry.job is not None and entry.gone is None and self.serves(entry.namespace)
        return there and (not request.HasField("namespace") or entry.namespace == request.namespace)

    def _nodes(self) -> Nodes:
        if self.nodes is None:
            raise NotOffered("only an embedded cluster can fail, drain or restore nodes")
        return self.nodes

    def _summary(self, entry: Entry) -> wire.Job:
        return people_records.summary(_job(entry), self.judge.phase(entry))

    def _full(self, entry: Entry) -> wire.Job:
        return people_records.full(_job(entry), entry.observed(), self.judge.phase(entry))

    def _node(self, manifest: Manifest) -> wire.Node:
        shown = [entry for entry in self.cache if self.serves(entry.namespace)]
        pods = [(entry.namespace, pod) for entry in shown for pod in entry.pods]
        return people_records.node(manifest, pods)

    def _is_over(self, entry: Entry) -> bool:
        forgotten = self.cache.of(entry.key) is not entry
        return forgotten or self.judge.phase(entry).phase.is_terminal


def _job(entry: Entry) -> Job:
    assert entry.job is not None, "entries without a job are never selected"  # noqa: S101 - for mypy.
    return entry.job


# ---- gRPC handlers

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)
_Context = grpc.aio.ServicerContext


def handler(people: People) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the service for `grpc.aio.Server.add_generic_rpc_handlers`."""
    methods = {
        "ListJobs": _stream(people.list_jobs, wire.ListJobsRequest),
        "GetJob": _unary(people.get_job, wire.GetJobRequest),
        "WatchJobs": _stream(people.watch_jobs, wire.WatchJobsRequest),
        "ReadLogs": _stream(people.read_logs, wire.ReadLogsRequest),
        "CancelJob": _unary(people.cancel_job, wire.CancelJobRequest),
        "ListNodes": _unary(people.list_nodes, wire.ListNodesRequest),
        "SetNode": _unary(people.set_node, wire.SetNodeRequest),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _unary(
    call: Callable[[_Request], Awaitable[_Answer]],
    request: type[_Request],
) -> "grpc.RpcMethodHandler[Any, Any]":
    async def answer(said: _Request, context: "_Context[Any, Any]") -> _Answer:
        try:
            return await call(said)
        except BackendError as error:
            await _abort(context, error)

    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=_serialized
    )


def _stream(
    call: Callable[[_Request], AsyncGenerator[_Answer, None]],
    request: type[_Request],
) -> "grpc.RpcMethodHandler[Any, Any]":
    async def answer(said: _Request, context: "_Context[Any, Any]") -> AsyncGenerator[_Answer, None]:
        try:
            async with aclosing(call(said)) as answers:
                async for each in answers:
                    yield each
        except BackendError as error:
            await _abort(context, error)

    return grpc.unary_stream_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=_serialized
    )


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


_CODES: Final[Mapping[type[BackendError], grpc.StatusCode]] = {
    lookup.NoSuchJob: grpc.StatusCode.NOT_FOUND,
    lookup.ManyJobs: grpc.StatusCode.INVALID_ARGUMENT,
    lookup.NoSuchRank: grpc.StatusCode.INVALID_ARGUMENT,
    NotOffered: grpc.StatusCode.UNIMPLEMENTED,
    Refused: grpc.StatusCode.FAILED_PRECONDITION,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}


async def _abort(context: "_Context[Any, Any]", error: BackendError) -> NoReturn:
    code = _CODES.get(type(error), grpc.StatusCode.INTERNAL)
    if isinstance(error, Refused) and error.code == HTTPStatus.NOT_FOUND:
        code = grpc.StatusCode.NOT_FOUND
    await context.abort(code, str(error))
    raise AssertionError("abort raises")
