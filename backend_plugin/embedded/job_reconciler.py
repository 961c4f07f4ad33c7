"""The job reconciler: executes the actions with which an emulated operator reconciles a job."""

from datetime import datetime
from typing import Final

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.values import Manifest
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
    Create,
    Delete,
    JobSnapshot,
    Release,
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


class JobReconciler:
    """Reconciles a job when the job, one of its pods or one of its services changes."""

    def __init__(self, store: Store, pods: PodController, recorder: EventRecorder) -> None:
        self._store = store
        self._pods = pods
        self._recorder = recorder
        self._work = WorkQueue(self._process_key, store.clock)
        self._gone: set[str] = set()
        """The uids of deleted jobs that may still own objects."""
        self._ports = PortAllocator(
            {
                get_owner_uid(pod): int(port)
                for pod in store.list_objects("Pod")
                if (port := get_annotation(pod, PORT)).isdigit()
            }
        )

    def start(self) -> None:
        """Delete the objects of deleted jobs, and queue a reconcile pass for every job."""
        owners = self._store.list_owners()
        self._gone.update(owner for owner in owners if not self._store.get_by_uid(owner))
        self._collect_garbage()
        for kind in OPERATORS:
            for job in self._store.list_objects(kind):
                self._work.add(get_key(job))

    def on_change(self, change: ObjectChange) -> None:
        """Queue a reconcile pass for the job that a change in the store affects."""
        if change.key.kind in OPERATORS:
            if change.new is None:
                self._gone.add(get_uid(change.manifest))
            self._work.add(change.key)
        elif change.key.kind in ("Pod", "Service"):
            self._on_owned_change(get_owner_uid(change.manifest))

    def close(self) -> None:
        """Stop reconciling."""
        self._work.close()

    def _on_owned_change(self, owner: str) -> None:
        job = self._store.get_by_uid(owner)
        if job is not None:
            self._work.add(get_key(job))
        elif not self._store.list_owned(owner, "Pod"):
            self._ports.release_port(owner)

    def _collect_garbage(self) -> None:
        for owner in tuple(self._gone):
            for each in [each for kind in _OWNED for each in self._store.list_owned(owner, kind)]:
                self._store.remove(get_uid(each))
            for pod in self._store.list_owned(owner, "Pod"):
                if is_tracked(pod) or not is_terminating(pod):
                    self._pods.delete(self._pods.release(pod))
            self._on_owned_change(owner)
            self._gone.remove(owner)

    def _process_key(self, key: Key) -> datetime | Retry | None:
        try:
            self._collect_garbage()
            job = self._store.get(key)
            return None if job is None else self._reconcile_job(job)
        except ClusterUnavailable:
            return FAILED

    def _reconcile_job(self, job: Manifest) -> datetime | Retry | None:
        """Run one reconcile pass. Return the time of the next pass, or `FAILED` if an action was rejected."""
        uid = get_uid(job)
        snapshot = JobSnapshot(
            job=job,
            pods=self._store.list_owned(uid, "Pod"),
            services=self._store.list_owned(uid, "Service"),
            now=self._store.clock(),
            prerequisite=find_prerequisite(job, self._store.get),
        )
        step = OPERATORS[get_key(job).kind].reconcile(snapshot)
        # Commit the deletion of a pod and its count in the status in one transaction.
        with self._store.transaction():
            if not all(self._apply_action(snapshot, each) for each in step.actions):
                return FAILED
            for event in step.events:
                self._recorder.record(job, event)
            if step.status is not None:
                self._store.update({**job, "status": step.status})
            return step.wake_at

    def _apply_action(self, snapshot: JobSnapshot, action: Action) -> bool:
        """Execute an action, and record its event. Return False if the action is rejected."""
        refusal = None
        try:
            self._execute(snapshot, action)
        except (AlreadyExists, RequestRejected, OSError) as error:
            refusal = str(error)
        operator = OPERATORS[get_key(snapshot.job).kind]
        event = operator.build_action_event(snapshot, action, refusal)
        if event is not None:
            self._recorder.record(snapshot.job, event)
        return refusal is None

    def _execute(self, snapshot: JobSnapshot, action: Action) -> None:
        if isinstance(action, Create):
            if get_key(action.manifest).kind == "Pod":
                self._pods.create(action.manifest, self._ports.get_port(get_uid(snapshot.job)))
            else:
                self._store.create(action.manifest)
        elif existing := self._store.get(action.key):
            self._delete_object(existing, action)

    def _delete_object(self, existing: Manifest, action: Delete | Release) -> None:
        if action.key.kind != "Pod":
            self._store.remove(get_uid(existing))
            return
        released = self._pods.release(existing)
        if isinstance(action, Delete):
            self._pods.delete(released)
