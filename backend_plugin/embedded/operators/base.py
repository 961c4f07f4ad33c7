"""The interface of an operator: the functions with which the embedded cluster runs one kind of job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded.objects import Key, get_key


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerJob:
    """The identity of a job, for the owner references of its objects."""

    dialect: Dialect
    name: str
    namespace: str
    uid: str

    def build_object(self, kind: str, name: str, spec: Manifest, **metadata: JsonValue) -> Manifest:
        """Return a core/v1 object of this kind that the job owns. `metadata` are other metadata fields."""
        owner: Manifest = {
            **self.dialect.resource.type_meta,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        fields = {"name": name, "namespace": self.namespace, **metadata, "ownerReferences": [owner]}
        return {"apiVersion": "v1", "kind": kind, "metadata": fields, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job and its objects, as the store contains them at the time `now`."""

    job: Manifest
    pods: Sequence[Manifest]
    services: Sequence[Manifest]
    now: datetime
    prerequisite: Manifest | None = None
    """The object that the job requires, such as its TrainingRuntime; None if there is none."""


@dataclass(frozen=True, slots=True)
class Create:
    """The action to create a pod or a service. `admission.admit_pod` may reject the pod."""

    manifest: Manifest

    @property
    def key(self) -> Key:
        """The key of the new object."""
        return get_key(self.manifest)


@dataclass(frozen=True, slots=True)
class Delete:
    """The action to delete a pod, a service, or the job with all objects that the job owns.

    A pod loses its finalizer `objects.TRACKING` and is deleted with its own grace period.
    """

    key: Key


@dataclass(frozen=True, slots=True)
class Release:
    """The action to remove the finalizer `objects.TRACKING` of a pod, so that the pod can be removed."""

    key: Key


Action: TypeAlias = Create | Delete | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The result of one reconcile pass.

    The actions are executed in order. If one is rejected, the remaining actions, the events and the status
    are discarded, and the pass is repeated after a backoff. `OperatorEmulation.build_action_event` returns
    the event for an action.
    """

    status: Manifest | None = None
    """The complete new status of the job. None if it does not change."""
    actions: tuple[Action, ...] = ()
    events: tuple[Manifest, ...] = ()
    """The bodies of core/v1 Events of the job, as `EventRecorder.record` requires them."""
    wake_at: datetime | None = None
    """The time of the next reconcile pass, if no object changes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEmulation:
    """An emulated operator. Its functions are pure."""

    dialect: Dialect
    """The kind of its jobs, as `core.dialects` describes it."""
    admit: Callable[[Manifest, Manifest | None], Manifest]
    """Return a new job with the defaults of the API server. The store adds the uid, version and times.

    The second parameter is the stored prerequisite, the object that the job requires, such as a
    TrainingRuntime; None if there is none. Raises `RequestRejected` if the embedded cluster does not support
    the job, or if the prerequisite is missing.
    """
    reconcile: Callable[[JobSnapshot], ReconcileResult]
    """Return the actions, events and status that follow from the stored objects of a job."""
    build_action_event: Callable[[JobSnapshot, Action, str | None], Manifest | None]
    """Return the event that the operator reports about an action; None if it reports none.

    The third parameter is the message of the rejection; None if the action was executed.
    """
    admit_prerequisite: Callable[[Manifest], Manifest] | None = None
    """Return a new prerequisite with the defaults of the API server; see `admit`.

    The field is None if the jobs of the operator have no prerequisites. Raises `RequestRejected` if the
    embedded cluster does not support the prerequisite.
    """
    find_prerequisite: Callable[[Manifest], Key] | None = None
    """Return the key of the prerequisite of a job. The field is None if jobs have no prerequisites."""
    host_suffix: str = ""
    """A regular expression for the part of a pod's host name after the name of its job.

    Such host names are in a subdomain with the name of the job. Without a suffix, the host name of a pod is
    the name of the pod.
    """
    gate: str = ""
    """The name of the init container that makes a pod wait for the leader of its job; empty if no pod waits.

    The container is not executed: the shim of the pod waits until the leader is ready or has succeeded.
    """
    leader: str = ""
    """The role of the leader, in lower case; empty if no pod waits for a leader."""
