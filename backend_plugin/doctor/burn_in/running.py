"""Runs a burn-in: creates the job, waits for it, reads its logs, and deletes it in all cases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from msgspec import structs

from backend_plugin.core import pipeline
from backend_plugin.core.errors import BackendError, Refused
from backend_plugin.core.job import TRAINER
from backend_plugin.core.observed import Observed, Pod, PodGroup, read_job, read_observed
from backend_plugin.core.reading import section, text
from backend_plugin.core.rules import Rules
from backend_plugin.core.scheduling import companions
from backend_plugin.core.task_phase import Phase, TaskPhase
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import rights
from backend_plugin.doctor.asking import Asking, NotSeen, build_forbidden
from backend_plugin.doctor.burn_in import job as making
from backend_plugin.doctor.burn_in import results
from backend_plugin.doctor.check import Finding
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.looks import Look
from backend_plugin.kube import credentials
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.cluster import KubernetesCluster, resource_of
from backend_plugin.kube.connection import Connection, Question
from backend_plugin.kube.kinds import EVENTS, JOBS, KINDS, PODS, Resource
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Rule
from backend_plugin.shell.cluster import AlreadyExists, Name, Unavailable

_NEEDED: Final = (
    Rule(resource=JOBS, verbs=("create", "get", "delete")),
    Rule(resource=PODS, verbs=("list",)),
    Rule(resource=PODS, verbs=("get",), sub="log"),
    Rule(resource=EVENTS, verbs=("list",)),
)
"""The required permissions. Without them no job is created, because its outcome could not be read."""
_PROGRAM: Final = Path(__file__).with_name("program.py")
_LINES: Final = 200
_ABOUT: Final = ("PyTorchJob", "Pod", "PodGroup")
_JOB_NAME: Final = "training.kubeflow.org/job-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The timeout of a burn-in, and its progress callbacks."""

    seconds: int
    say: Callable[[str], None]
    """Receives one line for each change."""
    pause: float = 2.0
    """Seconds between two polls."""
    is_told: Callable[[], bool] = lambda: False
    """True if the burn-in was requested to stop, even if the task was not cancelled."""


async def burned_in(options: KubernetesOptions, facts: Facts, limits: Limits) -> Sequence[Finding]:
    """Run the job that was planned in `facts`. Errors of the cluster become findings and are not raised.

    The job is deleted afterwards, also after a cancellation. A failed deletion is a finding.
    """
    planned = facts.task.job
    if facts.unreachable or planned is None:
        why = facts.unreachable or "the task cannot be planned"
        return [results.not_run(why, "correct the problems in the other findings")]
    connection = Connection(credentials.choose(options))
    try:
        await connection.open()
        program = _PROGRAM.read_text(encoding="utf-8")
        job = making.of(planned, program, limits.seconds)
        return await _BurnIn(connection, options, facts, limits).found(job)
    except NotSeen as lacking:
        return [results.not_run(lacking.unseen.reason, lacking.unseen.remedy)]
    except BackendError as trouble:
        return [results.ill(str(trouble))]
    finally:
        await connection.close()


class _BurnIn:
    """A burn-in job on a cluster."""

    def __init__(
        self, connection: Connection, options: KubernetesOptions, facts: Facts, limits: Limits
    ) -> None:
        groups = facts.of(Subject.GROUPS)
        versions = {text(each, "name"): text(section(each, "preferredVersion"), "version") for each in groups}
        self._api = Api(connection, options.patience)
        self._asking = Asking(self._api, versions)
        self._cluster = KubernetesCluster(connection, options)
        self._clock = connection.clock
        self._rules = Rules(judging=facts.settings.judging)
        self._namespace = facts.namespace
        self._beside = facts.task.beside
        self._limits = limits
        self._said = ""

    async def found(self, job: Manifest) -> Sequence[Finding]:
        """Run the job, and return its finding and one for a failed deletion."""
        name = text(section(job, "metadata"), "name")
        await self._may()
        left: list[Finding] = []
        async with self._made(job, left):
            finding = await self._ended(name)
        return [finding, *left]

    # ---- create and delete

    async def _may(self) -> None:
        """Check that all objects may be created, read and deleted, before the first one is created.

        Raises:
            NotSeen: If permissions are missing, with the rules.
        """
        beside = [Rule(resource=resource_of(each), verbs=("create",)) for each in self._beside]
        needed = [replace(each, namespace=self._namespace) for each in (*_NEEDED, *beside)]
        missing = await rights.own(self._api, needed)
        if missing:
            uses = ", ".join(f"{verb} {rule.plural}" for rule in missing for verb in rule.verbs)
            raise build_forbidden(f"the account of this command lacks permissions: {uses}", missing)

    @asynccontextmanager
    async def _made(self, job: Manifest, left: list[Finding]) -> AsyncIterator[None]:
        metadata = section(job, "metadata")
        name = Name(namespace=self._namespace, name=text(metadata, "name"))
        self._limits.say(f"creating PyTorchJob {name.namespace}/{name.name}, which is deleted at the end")
        try:
            stored = await self._cluster.create(job)
            for each in companions.of(read_job(stored)):
                await self._create(each)
            yield
        finally:
            try:  # Deletes by name, because the reply to the create request may be lost; the name is unique.
                await self._cluster.delete(name, awaited=True)
            except (Refused, Unavailable) as trouble:
                left.append(results.left(name.namespace, name.name, str(trouble)))
                self._limits.say(f"{left[-1].sentence}; {left[-1].remedy}")
            else:
                self._limits.say(f"deleted PyTorchJob {name.namespace}/{name.name}")

    async def _create(self, companion: Manifest) -> None:
        with suppress(AlreadyExists):  # A connector that watches all jobs may create it first.
            await self._cluster.create(companion)

    # ---- wait

    async def _ended(self, name: str) -> Finding:
        """Return the finding for the job of that name. The last request may exceed the timeout."""
        # Before Python 3.12, a request may swallow the cancellation of the waiting task.
        end = asyncio.get_running_loop().time() + self._limits.seconds
        logs: dict[str, Sequence[str]] = {}
        failed: dict[str, tuple[bool, str]] = {}
        while asyncio.get_running_loop().time() < end:
            if self._limits.is_told():
                raise asyncio.CancelledError
            observed = await self._observed(name)
            phase = pipeline.judge(observed, self._rules, self._clock.now())
            self._tell(phase)
            for pod in observed.pods:
                if _has_failed(pod):
                    failed.setdefault(pod.name, _when(pod))
                if not logs.get(pod.name) and (_has_ended(pod) or phase.phase.is_terminal):
                    logs[pod.name] = await self._log(pod)
                    measured = results.read(logs[pod.name])
                    if measured is not None:
                        return results.well(measured, [each.node for each in observed.pods if each.node])
            if phase.phase.is_terminal:
                first = sorted(filter(logs.get, failed), key=lambda name: failed[name])[:1]
                return _ill(phase, [line for name in first for line in logs[name]])
            await asyncio.sleep(self._limits.pause)
        return results.late(f"{self._limits.seconds} s", self._said)

    def _tell(self, phase: TaskPhase) -> None:
        said = f"{phase.phase.value}: {phase.message.partition(chr(10))[0]}"
        if said != self._said:
            self._said = said
            self._limits.say(said)

    # ---- observe

    async def _observed(self, name: str) -> Observed:
        try:
            job: Manifest | None = await self._api.object(Question(path=JOBS.path(self._namespace, name)))
        except Answered as answer:
            if not answer.is_not_found:
                raise Unavailable(f"the API server answers {answer}") from answer
            job = None
        pods, events = await self._pods(name), await self._events(name)
        seen = read_observed({"job": job, "pods": pods, "events": events})
        return structs.replace(seen, pod_groups=await self._groups(name))

    async def _pods(self, name: str) -> Sequence[Manifest]:
        query = {"labelSelector": f"{_JOB_NAME}={name}"}
        return await self._asking.look(self._look(PODS, query)) or []

    async def _events(self, name: str) -> Sequence[Manifest]:
        """Return the events, or the ones read so far if listing is forbidden; events only add details."""
        found: list[Manifest] = []
        for about in _ABOUT:
            query = {"fieldSelector": f"involvedObject.kind={about}"}
            try:
                found += await self._asking.look(self._look(EVENTS, query)) or []
            except NotSeen:
                return found
        return [each for each in found if text(section(each, "involvedObject"), "name").startswith(name)]

    async def _groups(self, name: str) -> tuple[PodGroup, ...]:
        """Return the pod groups of the job, without the kinds that may not be listed."""
        found: list[PodGroup] = []
        for kind in KINDS:
            if kind.record is not PodGroup:
                continue
            try:
                listed = await self._asking.look(self._look(kind.resource, {})) or []
            except NotSeen:
                continue
            read = [kind.read(each) for each in listed]
            found += [each for each in read if isinstance(each, PodGroup) and each.name == name]
        return tuple(found)

    def _look(self, resource: Resource, query: Mapping[str, str]) -> Look:
        return Look(subject=Subject.JOBS, resource=resource, namespaces=(self._namespace,), query=query)

    async def _log(self, pod: Pod) -> Sequence[str]:
        path = f"{PODS.path(self._namespace, pod.name)}/log"
        query = {"container": TRAINER, "tailLines": str(_LINES)}
        try:
            return await self._api.read(Question(path=path, query=query), _lines)
        except Answered:  # The container has not started, or the pod was deleted.
            return []


def _lines(body: bytes) -> Sequence[str]:
    return body.decode(errors="replace").splitlines()


def _ill(phase: TaskPhase, lines: Sequence[str]) -> Finding:
    """Return the finding for a failure, with the log lines of the replica that failed first."""
    if phase.phase is Phase.SUCCEEDED:
        return results.ill("the job ended, and no replica wrote its measurement", lines)
    return results.ill(phase.message, lines)


def _has_ended(pod: Pod) -> bool:
    """True if the container of the program has terminated; other containers may still run."""
    primary = pod.primary
    return pod.phase in ("Succeeded", "Failed") or (primary is not None and primary.ended is not None)


def _has_failed(pod: Pod) -> bool:
    ended = pod.primary.ended if pod.primary is not None else None
    return pod.phase == "Failed" or (ended is not None and ended.exit_code != 0)


def _when(pod: Pod) -> tuple[bool, str]:
    ended = pod.primary.ended if pod.primary is not None else None
    at = ended.finished if ended is not None else None
    return at is None, at.isoformat() if at is not None else ""
