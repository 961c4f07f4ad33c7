"""The job reconciler: applies the actions that an operator returns for a job and its objects."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import admission
from backend_plugin.embedded.events import EventRecorder
from backend_plugin.embedded.objects import (
    PREREQUISITES,
    Key,
    get_annotation,
    get_key,
    get_owner_uid,
    get_uid,
    is_terminating,
    is_tracked,
)
from backend_plugin.embedded.operators.base import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    JobSnapshot,
    OperatorEmulation,
    ReconcileResult,
    ReleasePod,
)
from backend_plugin.embedded.operators.table import OPERATORS, find_prerequisite
from backend_plugin.embedded.pod_addresses import PORT
from backend_plugin.embedded.pods import PodController
from backend_plugin.embedded.ports import PortAllocator
from backend_plugin.embedded.store import ObjectChange, Store
from backend_plugin.embedded.workqueue import FAILED, Retry, WorkQueue
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable

_OWNED: Final = ("Service", "PodGroup", *PREREQUISITES)
"""The kinds of objects, other than pods, that are deleted with the job that owns them."""
AT_ONCE: Final = 50
"""The number of objects that are created or deleted in one batch. Requests are served between batches."""


class JobReconciler:
    """Reconciles a job when the job, one of its pods or one of its services changes."""

    def __init__(self, store: Store, pods: PodController, recorder: EventRecorder) -> None:
        self._store = store
        self._pods = pods
        self._recorder = recorder
        self._work = WorkQueue(self._process_key, store.clock)
        self._rests: dict[str, tuple[JobSnapshot, ReconcileResult]] = {}
        """The unfinished passes by job uid: the snapshot, and the result with the remaining actions."""
        self._gone: dict[str, None] = {}
        """The uids of deleted jobs that may still own objects."""
        self._ports = PortAllocator(
            {
                get_owner_uid(pod): int(port)
                for pod in store.list_objects("Pod")
                if (port := get_annotation(pod, PORT)).isdigit()
            }
        )

    def start(self) -> None:
        """Delete the objects of deleted jobs, and queue every job."""
        self._gone.update(
            (owner, None) for owner in self._store.list_owners() if not self._store.get_by_uid(owner)
        )
        while not self._collect_garbage():
            pass
        for kind in OPERATORS:
            for job in self._store.list_objects(kind):
                self._work.add(get_key(job))

    def on_change(self, change: ObjectChange) -> None:
        """Queue the job that a change in the store affects."""
        if change.key.kind in OPERATORS:
            self._on_job_change(change)
        elif change.key.kind in ("Pod", "Service"):
            self._on_owned_change(get_owner_uid(change.manifest))

    def close(self) -> None:
        """Stop reconciling."""
        self._work.close()

    def _on_job_change(self, change: ObjectChange) -> None:
        if change.new is None:
            self._gone[get_uid(change.manifest)] = None
            self._rests.pop(get_uid(change.manifest), None)
        self._work.add(change.key)

    def _on_owned_change(self, owner: str) -> None:
        job = self._store.get_by_uid(owner)
        if job is not None:
            self._work.add(get_key(job))
        elif not self._store.list_owned(owner, "Pod"):
            self._ports.release_port(owner)

    def _collect_garbage(self) -> bool:
        """Delete up to `AT_ONCE` objects of deleted jobs. Return True if no such object is left."""
        left = AT_ONCE
        while self._gone and left > 0:
            owner = next(iter(self._gone))
            still = [each for kind in _OWNED for each in self._store.list_owned(owner, kind)]
            pods = [
                pod
                for pod in self._store.list_owned(owner, "Pod")
                if is_tracked(pod) or not is_terminating(pod)
            ]
            for each in still[:left]:
                self._store.remove(get_uid(each))
            left -= len(still)
            for pod in pods[: max(0, left)]:
                self._pods.delete(self._pods.release(pod))
            left -= len(pods)
            if left >= 0:
                self._on_owned_change(owner)
                del self._gone[owner]
        return not self._gone

    def _process_key(self, key: Key) -> datetime | Retry | None:
        try:
            if not self._collect_garbage():
                return self._store.clock()
            job = self._store.get(key)
            return None if job is None else self._reconcile_job(job)
        except ClusterUnavailable:
            return FAILED

    def _reconcile_job(self, job: Manifest) -> datetime | Retry | None:
        """Start or continue a reconcile pass of a job, and apply up to `AT_ONCE` of its actions.

        If an action fails, do not apply the later ones, and return `FAILED`. Else return the time of the next
        call: now if actions remain, None if no call is needed until an object changes.
        """
        uid, operator = get_uid(job), _get_operator(job)
        # Continue an interrupted pass: a new pass could regard the pods that the old pass deleted as failed.
        snapshot, step = self._rests.pop(uid, (None, None))
        if snapshot is None or step is None or snapshot.job is not job:
            snapshot = self._build_snapshot(job)
            step = operator.reconcile(snapshot)
        # Commit the deletion of a pod and its count in the status in one transaction.
        with self._store.transaction():
            done = self._apply_actions(snapshot, step.actions[:AT_ONCE])
            if len(done) < len(step.actions):
                counted = self._store.update(operator.with_recreations(snapshot, step, done))
                if len(done) < AT_ONCE:
                    return FAILED
                if counted is job:
                    self._rests[uid] = snapshot, replace(step, actions=step.actions[AT_ONCE:])
                return self._store.clock()
            for event in step.events:
                self._recorder.record(job, event)
            if step.status is not None:
                self._store.update({**job, "status": step.status})
            return step.wake_at

    def _build_snapshot(self, job: Manifest) -> JobSnapshot:
        uid = get_uid(job)
        return JobSnapshot(
            job=job,
            pods=self._store.list_owned(uid, "Pod"),
            services=self._store.list_owned(uid, "Service"),
            now=self._store.clock(),
            prerequisite=find_prerequisite(job, self._store.get),
        )

    def _apply_actions(self, snapshot: JobSnapshot, actions: Sequence[Action]) -> Sequence[Action]:
        for at, action in enumerate(actions):
            try:
                self._apply_action(snapshot, action)
            except (AlreadyExists, RequestRejected, OSError) as refusal:
                self._record_action(snapshot, action, str(refusal))
                return actions[:at]
            self._record_action(snapshot, action, None)
        return actions

    def _record_action(self, snapshot: JobSnapshot, action: Action, refusal: str | None) -> None:
        event = _get_operator(snapshot.job).build_action_event(snapshot, action, refusal)
        if event is not None:
            self._recorder.record(snapshot.job, event)

    def _apply_action(self, snapshot: JobSnapshot, action: Action) -> None:
        job = get_key(snapshot.job)
        match action:
            case CreatePod(manifest):
                self._pods.create(manifest, self._ports.get_port(get_uid(snapshot.job)))
            case CreateService(manifest):
                self._store.create(admission.with_service_defaults(manifest))
            case DeletePod(name) | ReleasePod(name):
                self._release_pod(Key("Pod", job.namespace, name), action)
            case DeleteService(name):
                self._remove_service(Key("Service", job.namespace, name))
            case DeleteJob():
                self._store.remove(get_uid(snapshot.job))

    def _release_pod(self, key: Key, action: DeletePod | ReleasePod) -> None:
        pod = self._store.get(key)
        if pod is not None:
            released = self._pods.release(pod)
            if isinstance(action, DeletePod):
                self._pods.delete(released)

    def _remove_service(self, key: Key) -> None:
        if service := self._store.get(key):
            self._store.remove(get_uid(service))


def _get_operator(job: Manifest) -> OperatorEmulation:
    return OPERATORS[get_key(job).kind]
