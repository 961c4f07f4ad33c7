"""The interface of a dialect, and the rules for manifests that all dialects share.

A dialect is the data and the functions by which this project supports one kind of job, such as PyTorchJob.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from backend_plugin.core.errors import InvalidTask, Problem, check_size
from backend_plugin.core.job import ReplicaRole, TrainingJob
from backend_plugin.core.observed import Job, JobLimit, Observed
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.runtimes import PackageJob, Runtime
from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResource:
    """The API resource of a kind of job, such as PyTorchJob, or of another kind of object that jobs need."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the objects of this kind."""
        return f"{self.group}/{self.version}"

    @property
    def type_meta(self) -> dict[str, str]:
        """The fields `apiVersion` and `kind` of the objects of this kind."""
        return {"apiVersion": self.api_version, "kind": self.kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLabels:
    """The names of the pod labels that identify a replica."""

    job_name: str
    role: str
    """The label with the replica role; the case of its value is ignored."""
    index: str
    """The label with the index of the replica within its role."""
    attempt: str = ""
    """The label with the number of job restarts before the pod was created; empty without such a label."""
    first_index: str = ""
    """The label with a number to add to the value of the label `index`; empty if there is no such label."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The replica roles by the value of the role label, for values that differ from the name of the role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPort:
    """The port of the first replica, to which the other replicas connect."""

    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSupport:
    """The kinds of training runtimes that a job can name, and the functions for them."""

    kinds: tuple[JobResource, ...]
    """The API resources of training runtimes; the namespaced one is first, because it takes precedence."""
    read: Callable[[Manifest], Runtime]
    """Read a training runtime of any kind in `kinds`; never raises an exception."""
    build_package_job: Callable[[Runtime, PackageJob], Manifest]
    """Return a job with one node that prints the Python packages of a training runtime."""
    check_reference: Callable[[Manifest, Sequence[Runtime]], Iterable[Problem]]
    """Return the problems of the runtime that a job names; the second parameter has all known runtimes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A kind of job, such as PyTorchJob: its API resource, and functions that write and read manifests."""

    resource: JobResource
    number: int
    """The number of the dialect in `kfpytorch_idl.v1.JobRef`; it never changes."""
    operator: str
    """The name of its operator, for messages."""
    container: str
    """The name of the training container."""
    port: ReplicaPort
    labels: ReplicaLabels
    longest_name: int
    longest_name_with_initializers: int = 0
    """The maximum length of the name of a job with initializers; 0 if there are no such jobs."""
    initializers: Mapping[str, str] = field(default_factory=dict)
    """The roles of the pods that load data before the replicas are created, by the kind of the data."""
    pod_suffix: str
    """A regular expression for the part of a pod's name after the name of its job."""
    build: Callable[[TrainingJob, JobDraft], Manifest]
    """Return the manifest of a job; raise `InvalidTask` if the dialect cannot represent the job."""
    build_probe: Callable[[Mapping[str, Any]], Manifest]
    """Return the smallest valid job with the given metadata, for a dry run."""
    read: Callable[[Manifest], Job]
    """Read a job as the API server returns it; never raises an exception."""
    fields: Any
    """A TypedDict of the fields that `read` uses; other fields are not decoded."""
    is_suspended: Callable[[Manifest], bool]
    end_spec: Manifest
    """The change of the spec that ends a job that has pods; the operator then deletes the pods."""
    suspend_spec: Manifest
    """The change of the spec that suspends a job without pods."""
    build_stop_spec: Callable[[Job], Manifest | None]
    """Return the change of the spec after which the job ends when its pods have ended; None if not possible.

    After the change, the operator restarts and deletes no pod, and `Job.clean_pod_policy` is "None".
    """
    limits: Mapping[str, JobLimit]
    """The limits that can end a job, by a part of the message of the condition that reports the end."""
    list_added_containers: Callable[[ReplicaRole, Iterable[ReplicaRole]], Sequence[Manifest]] = lambda *_: ()
    """Return the init containers, with name and resources, that the operator adds to the pods of a role.

    The second parameter contains all roles of the job.
    """
    check_container: Callable[[Mapping[str, Any], str], Iterable[Problem]]
    """Return the problems of a training container; the second parameter is its path in the task template."""
    build_pod_name: Callable[[Job, str, int], str]
    """Return the name of a pod, or its first part, from the job, the name of the role and the index."""
    read_without_pods: Callable[[Manifest], Job] | None = None
    """Read a job whose pods are unknown, and derive the missing conditions from its status.

    None if the operator reports all conditions.
    """
    fold: Callable[[TrainingJob, Sequence[Manifest]], tuple[TrainingJob, Sequence[Manifest]]] = (
        lambda *parts: parts
    )
    """Return the job with its groups merged into the dialect's roles, and the pod template of each role.

    Raises `InvalidTask` if groups that are merged have different pod templates.
    """
    build_prerequisites: Callable[[TrainingJob, JobDraft], tuple[Manifest, ...]] = lambda *_: ()
    """Return the objects that must exist before the job is created; the job becomes their owner."""
    runtimes: RuntimeSupport | None = None
    """The support for training runtimes; None if the jobs of the dialect do not refer to any."""
    prerequisite: JobResource | None = None
    """The API resource of the prerequisites; None if there are none."""
    is_premature: Callable[[str], bool] = lambda _: False
    """True if this message rejects a job only because a webhook has not yet observed a prerequisite."""
    interpret: Callable[[Observed], Observed] = lambda observed: observed
    """Return the observed state of an existing job, with added conditions that the operator does not set."""
    required_groups: tuple[str, ...] = ()
    """Further API groups that the operator of the dialect needs, so that the cluster must serve them."""
    installation: str = ""
    """The command that installs the operator."""
    deployments: tuple[Mapping[str, str], ...] = ()
    """Selectors for the Deployment of the operator; each selector is used in a separate list request."""
    event_kinds: tuple[str, ...] = ()
    """The kinds of objects, such as JobSet, through which a job owns its pods; their events are watched."""
    creation_failures: tuple[str, ...] = ()
    """The reasons of warning events about a failed creation of the objects of a job."""
    keeps_start: bool = True
    """True if the status of a job keeps its start time after a restart; else the server records the time."""
    creates_pod_groups: bool = True
    """True if the operator can create the pod groups of its jobs."""
    end_events: Mapping[str, str] = field(default_factory=dict)
    """The types of final conditions, by the reason of the operator's event that reports the same end."""
    operator_containers: frozenset[str] = frozenset()
    """The init containers that the operator adds; if one fails, the task is not the cause."""

    def find_limit(self, message: str) -> JobLimit | None:
        """Return the limit that ended a job, from the message of its condition; None if no limit ended it."""
        return next((limit for part, limit in self.limits.items() if part in message), None)

    def get_longest_name(self, job: TrainingJob) -> int:
        """Return the maximum length of the name of a job."""
        return (self.longest_name_with_initializers if job.sources else 0) or self.longest_name

    @property
    def ends_by_suspension(self) -> bool:
        """True if the server ends a job by suspending it; a queue may resume the job."""
        return self.end_spec == self.suspend_spec

    @property
    def name(self) -> str:
        """The name of the dialect: the kind of its objects."""
        return self.resource.kind


# The default request limit of etcd; the API server itself accepts 3 MiB.
_LARGEST: Final = 3 * 2**19


def encode_storable(manifest: Manifest) -> bytes:
    """Return the JSON of the manifest; raise `InvalidTask` if it is larger than the cluster accepts."""
    encoded = msgspec.json.encode(manifest)
    if problems := check_size(f"the {manifest['kind']}", len(encoded), _LARGEST):
        raise InvalidTask(*problems)
    return encoded


def without_duplicate_secrets(spec: Manifest) -> Manifest:
    """Return a pod's spec without duplicate pull secrets, which the CRDs of jobs reject."""
    secrets = spec.get("imagePullSecrets")
    if not isinstance(secrets, list):
        return spec
    return {**spec, "imagePullSecrets": list({str(each): each for each in secrets}.values())}
