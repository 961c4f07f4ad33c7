"""The job reconciler: applies the actions that `controller` returns for a job and its objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backend_plugin.core.errors import Refused
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import admission
from backend_plugin.embedded.controller import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    Seen,
    Step,
    counted,
    of_action,
    reconcile,
)
from backend_plugin.embedded.events import Recorder
from backend_plugin.embedded.objects import Key, annotation_of, is_terminating, key_of, owner_of, uid_of
from backend_plugin.embedded.pod_names import PORT
from backend_plugin.embedded.pods import Pods
from backend_plugin.embedded.ports import Ports
from backend_plugin.embedded.store import Change, Clock, Store
from backend_plugin.embedded.work import FAILED, Backoff, Failed, Work
from backend_plugin.shell.cluster import AlreadyExists, Unavailable

AT_ONCE: Final = 50
"""The maximum number of objects that one pass creates or deletes. Requests are served between two passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """The remaining actions of a reconcile pass."""

    seen: Seen
    step: Step
    done: int
    """The number of actions that were applied."""


class Jobs:
    """Reconciles a job when the job, one of its pods or one of its services changes."""

    def __init__(
        self, store: Store, pods: Pods, recorder: Recorder, *, backoff: Backoff, clock: Clock
    ) -> None:
        self._store = store
        self._pods = pods
        self._recorder = recorder
        self._clock = clock
        self._work = Work(self._look, backoff, clock)
        self._rests: dict[str, _Rest] = {}
        """The unfinished passes by job uid."""
        self._gone: dict[str, None] = {}
        """The uids of deleted jobs that may still own objects."""
        self._ports = Ports(
            {
                owner_of(pod): int(port)
                for pod in store.all("Pod")
                if (port := annotation_of(pod, PORT)).isdigit()
            }
        )

    def begin(self) -> None:
        """Delete the objects of deleted jobs, and queue every job."""
        self._gone.update((owner, None) for owner in self._store.owners() if not self._store.by_uid(owner))
        while not self._collect():
            pass
        for job in self._store.all("PyTorchJob"):
            self._work.add(key_of(job))

    def see(self, change: Change) -> None:
        """Queue the job that a change in the store affects."""
        if change.key.kind == "PyTorchJob":
            self._see_job(change)
        elif change.key.kind in ("Pod", "Service"):
            self._see_owned(owner_of(change.last))

    def close(self) -> None:
        """Stop reconciling."""
        self._work.close()

    def _see_job(self, change: Change) -> None:
        if change.new is None:
            self._gone[uid_of(change.last)] = None
            self._rests.pop(uid_of(change.last), None)
        self._work.add(change.key)

    def _see_owned(self, owner: str) -> None:
        job = self._store.by_uid(owner)
        if job is not None:
            self._work.add(key_of(job))
        elif not self._store.owned(owner, "Pod"):
            self._ports.release(owner)

    def _collect(self) -> bool:
        """Delete up to `AT_ONCE` objects of deleted jobs. Return True if none is left."""
        left = AT_ONCE
        while self._gone and left > 0:
            owner = next(iter(self._gone))
            still = [*self._store.owned(owner, "Service"), *self._store.owned(owner, "PodGroup")]
            pods = [pod for pod in self._store.owned(owner, "Pod") if not is_terminating(pod)]
            for each in still[:left]:
                self._store.remove(uid_of(each))
            left -= len(still)
            for pod in pods[: max(0, left)]:
                self._pods.delete(pod)
            left -= len(pods)
            if left >= 0:
                self._see_owned(owner)
                del self._gone[owner]
        return not self._gone

    def _look(self, key: Key) -> datetime | Failed | None:
        try:
            if not self._collect():
                return self._clock()
            job = self._store.get(key)
            return None if job is None else self._bring_on(job)
        except Unavailable:
            return FAILED

    def _bring_on(self, job: Manifest) -> datetime | Failed | None:
        uid = uid_of(job)
        rest = self._rests.pop(uid, None)
        if rest is not None and rest.seen.job is job:
            return self._take(rest)
        seen = Seen(
            job=job,
            pods=self._store.owned(uid, "Pod"),
            services=self._store.owned(uid, "Service"),
            now=self._clock(),
        )
        return self._take(_Rest(seen=seen, step=reconcile(seen), done=0))

    def _take(self, rest: _Rest) -> datetime | Failed | None:
        """Apply the next `AT_ONCE` actions of a pass. Stop at the first rejected action."""
        seen, step, until = rest.seen, rest.step, rest.done + AT_ONCE
        # Commit the deletion of a pod and its count in the status in one transaction.
        with self._store.together():
            actions = step.actions[rest.done : until]
            done = self._act_all(seen, actions)
            if len(done) < len(actions):
                self._count(rest, done)
                return FAILED
            if until < len(step.actions):
                if not self._count(rest, done):
                    self._rests[uid_of(seen.job)] = _Rest(seen=seen, step=step, done=until)
                return self._clock()
            for event in step.events:
                self._recorder.record(seen.job, event)
            if step.status is not None:
                self._store.update({**seen.job, "status": step.status})
            return step.wake_at

    def _count(self, rest: _Rest, done: Sequence[Action]) -> bool:
        """Store the count of the pods that were recreated so far. Return True if the job changed."""
        job = rest.seen.job
        return self._store.update(counted(rest.seen, rest.step, done)) is not job

    def _act_all(self, seen: Seen, actions: Sequence[Action]) -> Sequence[Action]:
        """Apply the actions until one is rejected, and return the applied ones."""
        for at, action in enumerate(actions):
            try:
                self._act(seen, action)
            except (AlreadyExists, Refused, OSError) as refusal:
                self._recorder.record(seen.job, of_action(seen, action, str(refusal)))
                return actions[:at]
            self._recorder.record(seen.job, of_action(seen, action))
        return actions

    def _act(self, seen: Seen, action: Action) -> None:
        job = key_of(seen.job)
        match action:
            case CreatePod(manifest):
                self._pods.create(manifest, self._ports.of(uid_of(seen.job)))
            case CreateService(manifest):
                self._store.create(admission.admit_service(manifest))
            case DeletePod(name):
                if pod := self._own(seen.job, Key("Pod", job.namespace, name)):
                    self._pods.delete(pod)
            case DeleteService(name):
                if service := self._own(seen.job, Key("Service", job.namespace, name)):
                    self._store.remove(uid_of(service))
            case DeleteJob():
                self._store.remove(uid_of(seen.job))

    def _own(self, job: Manifest, key: Key) -> Manifest | None:
        """Return the object if it belongs to this job, not to another job that had the same name."""
        found = self._store.get(key)
        return found if found is not None and owner_of(found) == uid_of(job) else None
