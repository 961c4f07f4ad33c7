"""One reconcile pass over a TrainJob, as Trainer, the JobSet controller and the Job controller do it.

A pass either changes the status or returns actions, so that the status is stored before the actions that
follow from it. Trainer's snapshots of training runtimes are not emulated, so the training runtime must exist
until the job has ended. A failed pod is replaced without the backoff of the Job controller.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec
from msgspec import structs

from backend_plugin.core.reading import get_int, get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import (
    build_condition,
    get_annotation,
    get_key,
    get_label,
    get_phase,
    is_ended,
    is_terminating,
    is_tracked,
)
from backend_plugin.embedded.operators.base import (
    Action,
    Create,
    Delete,
    JobSnapshot,
    ReconcileResult,
    Release,
)
from backend_plugin.embedded.operators.trainjob import status
from backend_plugin.embedded.operators.trainjob.job_spec import (
    DIALECT,
    FAIL,
    IGNORE,
    LABELS,
    OWN_MANAGER,
    RESTART_FREELY,
    TrainJobSpec,
    read_spec,
)
from backend_plugin.embedded.operators.trainjob.pods import JOB, JOBSET, build_event, build_pod, build_service
from backend_plugin.embedded.operators.trainjob.status import FIELD, JobSetState


def reconcile(snapshot: JobSnapshot) -> ReconcileResult:
    """Return the actions, events and status that follow from the stored objects of a TrainJob."""
    if get_text(get_mapping(snapshot.job, "spec"), "managedBy") not in ("", OWN_MANAGER):
        return ReconcileResult()
    if snapshot.prerequisite is None:
        missing = "TrainJob resources reconciliation failed: the runtime of the job does not exist"
        event = build_event(snapshot, DIALECT.name, "TrainJobResourcesCreationFailed", missing, warning=True)
        return ReconcileResult(events=() if status.find_end(snapshot.job) else (event,))
    job = read_spec(snapshot.job, snapshot.prerequisite)
    return _Pass(snapshot, job).run()


class _Pass:
    """One reconcile pass over a TrainJob. `run` changes the fields `state`, `end` and `events`."""

    def __init__(self, snapshot: JobSnapshot, job: TrainJobSpec) -> None:
        self.snapshot, self.job = snapshot, job
        self.state = msgspec.convert(get_mapping(snapshot.job, "status", FIELD), JobSetState)
        self.end = status.find_end(snapshot.job)
        """The condition Complete or Failed; None while the job has not ended."""
        attempt = str(self.state.restarts)
        self.pods = [each for each in snapshot.pods if get_label(each, LABELS.attempt) == attempt]
        """The pods of the current Job."""
        self.previous = [each for each in snapshot.pods if get_label(each, LABELS.attempt) != attempt]
        """The pods of earlier Jobs."""
        self.events: list[Manifest] = []

    def run(self) -> ReconcileResult:
        """Execute the pass. Return the new status and its events if the status changes, else the actions."""
        old = get_mapping(self.snapshot.job, "status")
        counts = status.build_job_status(self.job, self.state, None if self.previous else self.pods, self.end)
        wake_at = self._update_job() if self.end is None else None
        new: Manifest = {
            "conditions": status.build_conditions(
                self.snapshot, self.end, is_suspended=self.job.is_suspended
            ),
            "jobsStatus": [counts],
            FIELD: msgspec.to_builtins(self.state),
        }
        new = {key: value for key, value in new.items() if value}
        if new != old:
            return ReconcileResult(status=new, events=tuple(self.events))
        return ReconcileResult(actions=tuple(self._plan_actions()), wake_at=wake_at)

    def _update_job(self) -> datetime | None:
        """Update the state of the Job. Return the time of the next pass if no object changes before."""
        succeeded = (_get_index(pod) for pod in self.pods if get_phase(pod) == "Succeeded")
        completed = sorted({*self.state.completed, *succeeded})
        self.state = structs.replace(self.state, completed=completed)
        wake_at = None
        if not self._is_over():
            failure, wake_at = status.find_failure(self.job, self.pods, self.snapshot.now)
            self.state = structs.replace(self.state, failure=failure)
        if all(map(is_ended, self.pods)):
            self._handle_end()
        return wake_at

    def _handle_end(self) -> None:
        completed = self.state.completed
        if self.state.failure is not None:
            reason, message = self.state.failure["reason"], self.state.failure["message"]
            self._record(JOB, reason, message, warning=True)
            self._apply_failure_policy(reason, message)
        elif len(completed) >= self.job.nodes or self.job.is_success(completed):
            self._record(JOB, "Completed", "Job completed")
            self._finish("Complete", "AllJobsCompleted", "jobset completed successfully")

    def _is_over(self) -> bool:
        """True if the Job has failed or succeeded, although its last pods may still run."""
        return self.state.failure is not None or self.job.is_success(self.state.completed)

    def _apply_failure_policy(self, reason: str, message: str) -> None:
        action, rule = self.job.find_rule(reason, message)
        first = f"(first failed job: {self.job.job_name})"
        if not self.job.failure_policy:
            self._fail("FailedJobs", f"jobset failed due to one or more job failures {first}")
        elif action == FAIL:
            self._fail("FailJobSetFailurePolicyAction", f"applying FailJobSet failure policy action {first}")
        elif action != RESTART_FREELY and self.state.counted >= (
            get_int(self.job.failure_policy, "maxRestarts") or 0
        ):
            sentence = "jobset failed due to reaching max number of restarts"
            self._fail("ReachedMaxRestarts", f"{sentence} {first}")
        else:
            self._restart(action, rule, first)

    def _restart(self, action: str, rule: str, first: str) -> None:
        sentence = f"applying {action} failure policy action {first}"
        condition = f"FailurePolicy_{rule}" if rule else "DefaultFailurePolicy"
        for each in (condition, f"{action}FailurePolicyAction"):
            self._record(JOBSET, each, sentence, warning=True)
        counted = self.state.counted + (action != RESTART_FREELY)
        self.state = JobSetState(restarts=self.state.restarts + 1, counted=counted)

    def _fail(self, reason: str, message: str) -> None:
        self._record(JOBSET, reason, message, warning=True)
        self._finish("Failed", reason, message, event="JobSetFailed")

    def _finish(self, kind: str, reason: str, message: str, *, event: str = "") -> None:
        self.end = build_condition(kind, "True", reason=reason, message=message, now=self.snapshot.now)
        self._record(JOBSET, event or reason, message, warning=kind == "Failed")

    def _record(self, about: str, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append(build_event(self.snapshot, about, reason, message, warning=warning))

    def _plan_actions(self) -> Iterator[Action]:
        if self.end is not None:
            yield from _release(self.snapshot.pods)
        elif self.previous:
            # The strategy BlockingRecreate: the new Job gets pods when the last old pod is gone.
            yield from _delete(self.previous)
        else:
            yield from self._plan_job_actions()

    def _plan_job_actions(self) -> Iterator[Action]:
        if not self.snapshot.services:
            yield Create(build_service(self.job))
        is_over = self._is_over()
        if is_over or self.job.is_suspended:
            yield from _delete(pod for pod in self.pods if not is_ended(pod))
        if not is_over:
            yield from self._plan_pods()

    def _plan_pods(self) -> Iterator[Action]:
        # These pods run, or have failed and are still to be counted by the Job controller.
        uncounted = [pod for pod in self.pods if not self._is_counted(pod)]
        yield from _release(pod for pod in self.pods if pod not in uncounted)
        taken = {*self.state.completed, *map(_get_index, uncounted)}
        for index in range(0 if self.job.is_suspended else self.job.nodes):
            if index not in taken:
                yield Create(build_pod(self.job, index, self.state.restarts, self.snapshot.now))

    def _is_counted(self, pod: Manifest) -> bool:
        is_ignored = is_ended(pod) and self.job.find_pod_action(pod)[0] == IGNORE
        return get_phase(pod) == "Succeeded" or is_ignored


def _get_index(pod: Manifest) -> int:
    return int(get_annotation(pod, LABELS.index))


def _delete(pods: Iterable[Manifest]) -> Iterator[Action]:
    return (Delete(get_key(pod)) for pod in pods if is_tracked(pod) or not is_terminating(pod))


def _release(pods: Iterable[Manifest]) -> Iterator[Action]:
    return (Release(get_key(pod)) for pod in pods if is_ended(pod) and is_tracked(pod))
