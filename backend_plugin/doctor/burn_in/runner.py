"""Runs a burn-in: creates the job, waits for it, reads its logs, and deletes it in all cases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend_plugin.core import pipeline
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import BackendError, RequestRejected
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.observed import Pod
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_text
from backend_plugin.core.scheduling import companions
from backend_plugin.doctor import access_review, kubectl_commands
from backend_plugin.doctor.burn_in import job as making
from backend_plugin.doctor.burn_in import results
from backend_plugin.doctor.burn_in.observer import BurnInObserver
from backend_plugin.doctor.check import Finding, Severity
from backend_plugin.doctor.cluster_reader import (
    ClusterReader,
    build_forbidden,
    build_permission,
    open_connection,
)
from backend_plugin.doctor.facts import Facts, NotReadable, Subject
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_resources import EVENTS, JOBS, PODS, get_resource
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable, ObjectName
from backend_plugin.shell.job_creator import create_job
from kfpytorch_common.frameworks import TORCH

_NEEDED: Final = (
    build_permission(PODS, "list"),
    build_permission(PODS, "get", sub="log"),
    build_permission(EVENTS, "list"),
)
"""The permissions that a burn-in needs to read its result, in addition to those for jobs."""
_PROGRAM: Final = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnInLimits:
    """The timeout and the poll interval of a burn-in, and callbacks for its progress and for stop signals."""

    seconds: int
    say: Callable[[str], None]
    """Receives one line of text for each change of the job's state."""
    pause: float = 2.0
    """Seconds between two polls."""
    is_interrupted: Callable[[], bool] = lambda: False
    """Returns True after a stop signal, which ends the burn-in at the next poll."""


async def run_burn_in(options: KubernetesOptions, facts: Facts, limits: BurnInLimits) -> Sequence[Finding]:
    """Run a burn-in: a short job with the replicas of the task, which tests the connections between them.

    Errors of the cluster become findings. The job is deleted afterwards, also after a cancellation. A failed
    deletion is a finding.
    """
    task = facts.task
    if task.plan is None:
        why = facts.unreachable or "the task cannot be planned"
        return [_build_not_run(why, "correct the problems in the other findings")]
    if task.framework != TORCH:
        why = f"its program uses {TORCH}, and the framework of the task is {task.framework}"
        return [_build_not_run(why, f"select a task of {TORCH}")]
    trial = making.build_trial(task.plan, _PROGRAM.read_text(encoding="utf-8"), limits.seconds)
    try:
        async with open_connection(options) as (connection, api):
            return await _BurnInRunner(KubernetesCluster(connection, options), api, facts, limits).run(trial)
    except NotReadable as unreadable:
        return [_build_not_run(unreadable.reason, unreadable.remedy)]
    except BackendError as error:
        return [results.build_failure(str(error))]


def _build_not_run(why: str, remedy: str) -> Finding:
    return results.build_finding(Severity.UNKNOWN, f"no burn-in was run: {why}", remedy)


class _BurnInRunner:
    """A runner for one burn-in job."""

    def __init__(
        self, cluster: KubernetesCluster, api: ApiClient, facts: Facts, limits: BurnInLimits
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._facts = facts
        self._dialect = facts.task.dialect
        self._observer = BurnInObserver(
            api=api,
            reader=ClusterReader(api, facts.get_objects(Subject.GROUPS)),
            namespace=facts.namespace,
            dialect=self._dialect,
        )
        self._limits = limits
        self._summary = ""
        self._logs: dict[str, Sequence[str]] = {}
        """The last lines of each pod's log."""
        self._failed: dict[str, tuple[bool, str]] = {}
        """The sort key of each failed pod: whether its end time is unknown, and the end time as text."""

    async def run(self, trial: Plan) -> Sequence[Finding]:
        """Run the job; return the finding for its result, and another one if it cannot be deleted."""
        job_name = get_text(trial.job, "metadata", "name")
        name = ObjectName(namespace=self._facts.namespace, name=job_name, dialect=self._dialect.name)
        await self._require_permissions(trial)
        left: list[Finding] = []
        async with self._open_job(trial, name, left):
            finding = await self._wait_for_result(name)
        return [finding, *left]

    # ---- create and delete

    async def _require_permissions(self, trial: Plan) -> None:
        """Check the permissions for all objects before the first one is created.

        Raises:
            NotReadable: If permissions are missing; the error contains them.
        """
        rules = (
            build_permission(JOBS[self._dialect.name], "create", "get", "delete"),
            *_NEEDED,
            *(build_permission(get_resource(each), "create") for each in trial.companions),
            *(build_permission(get_resource(each), "create", "delete") for each in trial.prerequisites),
        )
        needed = [replace(each, namespace=self._facts.namespace) for each in rules]
        missing = await access_review.list_missing_rules(self._api, needed)
        if missing:
            uses = kubectl_commands.format_uses(missing)
            raise build_forbidden(f"the account of this command lacks permissions: {uses}", missing)

    @asynccontextmanager
    async def _open_job(self, trial: Plan, name: ObjectName, left: list[Finding]) -> AsyncIterator[None]:
        kind = self._dialect.name
        self._limits.say(f"creating {kind} {name.namespace}/{name.name}, which is deleted at the end")
        try:
            for each in trial.prerequisites:
                await self._cluster.create(each)
            stored = await create_job(self._cluster, self._dialect, trial.job)
            for each in companions.read_companions(read_job(stored)):
                with suppress(AlreadyExists):  # A connector may create the companion first.
                    await self._cluster.create(each)
            yield
        finally:
            try:  # Deletes by name, because the reply to the create request may be lost; the name is unique.
                await self._cluster.delete(name, awaited=True)
                for each in trial.prerequisites:
                    await self._cluster.delete_companion(each)
            except (RequestRejected, ClusterUnavailable) as error:
                sentence = f"the burn-in's job {name.namespace}/{name.name} could not be deleted: {error}"
                remedy = f"kubectl delete {kind.lower()} -n {name.namespace} {name.name}"
                left.append(results.build_finding(Severity.WARNING, sentence, remedy))
                self._limits.say(f"{sentence}; {remedy}")
            else:
                self._limits.say(f"deleted {kind} {name.namespace}/{name.name}")

    # ---- wait

    async def _wait_for_result(self, name: ObjectName) -> Finding:
        """Wait for the measurement, the end of the job or the timeout, and return the finding.

        The last request may exceed the timeout.
        """
        rules = JudgingContext(judging=self._facts.settings.judging)
        end = asyncio.get_running_loop().time() + self._limits.seconds
        while asyncio.get_running_loop().time() < end:
            if self._limits.is_interrupted():
                raise asyncio.CancelledError
            observed = await self._observer.fetch_observed(name.name, await self._cluster.get(name))
            phase = pipeline.judge(observed, rules, self._cluster.clock.get_current_time())
            self._report_phase(phase)
            measured = await self._find_measurement(observed.pods, is_last=phase.phase.is_terminal)
            if measured is not None:
                return results.build_success(measured, [each.node for each in observed.pods if each.node])
            if phase.phase.is_terminal:
                return self._build_failure(phase)
            await asyncio.sleep(self._limits.pause)
        sentence = (
            f"the burn-in did not end within {self._limits.seconds} s; its last state was {self._summary}"
        )
        remedy = "correct the cause of the wait, or increase --burn-in-timeout"
        return results.build_finding(Severity.ERROR, sentence, remedy)

    async def _find_measurement(self, pods: Iterable[Pod], *, is_last: bool) -> results.Measurement | None:
        """Return the first measurement in the logs of ended pods, or None if there is none.

        If the job has ended (`is_last`), read the logs of all pods.
        """
        for pod in pods:
            ended = pod.primary.ended if pod.primary is not None else None
            if pod.phase == "Failed" or (ended is not None and ended.exit_code != 0):
                at = ended.finished if ended is not None else None
                self._failed.setdefault(pod.name, (at is None, at.isoformat() if at is not None else ""))
            # Other containers of the pod may still run.
            has_ended = pod.phase in ("Succeeded", "Failed") or ended is not None
            if not self._logs.get(pod.name) and (is_last or has_ended):
                self._logs[pod.name] = await self._observer.read_log(pod)
                if (measured := results.find_measurement(self._logs[pod.name])) is not None:
                    return measured
        return None

    def _build_failure(self, phase: Verdict) -> Finding:
        """Return the finding for a failure, with the log lines of the replica that failed first."""
        first = min(filter(self._logs.get, self._failed), key=self._failed.__getitem__, default="")
        why = "the job ended, and no replica wrote its measurement"
        message = why if phase.phase is Phase.SUCCEEDED else phase.message
        return results.build_failure(message, self._logs.get(first, ()))

    def _report_phase(self, phase: Verdict) -> None:
        summary = f"{phase.phase.value}: {phase.message.partition(chr(10))[0]}"
        if summary != self._summary:
            self._summary = summary
            self._limits.say(summary)
