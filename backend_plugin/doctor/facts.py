"""The facts that the checks use: objects of the cluster, the planned task, and results of tests."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Final

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import BackendError, Problem
from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest
from kfpytorch_common.frameworks import MPI, MPI_SSH_PORT, TORCH

_JOBS: Final = " and ".join(f"{name}s" for name in table.DIALECTS)
_GROUPS: Final = " and ".join(dict.fromkeys(each.resource.group for each in table.DIALECTS.values()))


class Subject(enum.Enum):
    """A kind of fact that the doctor reads or tests; the value is its name in messages."""

    NAMESPACE = "the namespace"
    GROUPS = "the API groups"
    JOB_KINDS = f"the kinds of {_GROUPS}"
    JOB_SCHEMA = f"the CustomResourceDefinition of {_JOBS}"
    DEPLOYMENTS = "Deployments of all namespaces"
    JOBS = _JOBS
    NODES = "nodes"
    QUOTAS = "ResourceQuotas"
    LIMIT_RANGES = "LimitRanges"
    POLICIES = "NetworkPolicies"
    ACCOUNTS = "ServiceAccounts"
    SECRETS = "Secrets, their names only"
    CONFIG_MAPS = "ConfigMaps, their names only"
    CLAIMS = "PersistentVolumeClaims"
    PRIORITIES = "PriorityClasses"
    TEMPLATES = "PodTemplates"
    FLYTE_CONFIG = "ConfigMaps of Flyte's namespace"
    SCHEDULER_CONFIG = "ConfigMaps of schedulers"
    WAITING_FOR = "pods of the gang scheduler"
    DNS_ENDPOINTS = "the endpoints of the cluster's DNS"
    SERVICES = "Services of Flyte's namespace"
    ENDPOINTS = "endpoints of Flyte's namespace"
    QUEUES = "queues of the gang scheduler"
    PARENT_QUEUES = "parent queues of the gang scheduler"
    JOB_PRIORITIES = "priorities of the gang scheduler"
    RIGHTS = "permissions of the connector's account"
    JOB_TRIAL = "a dry run of the job"
    INVALID_TRIAL = "a dry run of a job that the operator's webhook refuses"
    POD_TRIALS = "a dry run of the job's pods"
    ROLES = "the pods of the task"
    STORES = "output prefixes"
    CONNECTOR = "the address of a connector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A rule of an RBAC role: verbs for one resource."""

    group: str
    resource: str
    """The plural name of the resource, with the subresource if there is one: ``pods/log``."""
    verbs: Sequence[str]
    namespace: str = ""
    """The namespace of the permission; empty for all namespaces."""


class NotReadable(BackendError):
    """Raised if an object could not be read. The message contains the reason and the remedy."""

    def __init__(
        self, reason: str, remedy: str = "", rules: Sequence[Permission] = (), user: str = ""
    ) -> None:
        """Store why a request failed.

        `rules` are the missing permissions; empty if the request failed for another reason. `user` is the
        user without the permissions; empty if it is not known.
        """
        verb = "run: " if remedy.startswith("kubectl ") else ""
        super().__init__(f"{reason}; {verb}{remedy}" if remedy else reason)
        self.reason, self.remedy, self.rules, self.user = reason, remedy, rules, user

    def merge(self, earlier: "NotReadable | None") -> "NotReadable":
        """Return one failure with the missing permissions of this failure and of `earlier`.

        If only one of the two failures has missing permissions, the other failure is dropped.
        """
        if earlier is None or not earlier.rules:
            return self
        return NotReadable(earlier.reason, earlier.remedy, (*earlier.rules, *self.rules), earlier.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunReply:
    """The reply of the API server to a dry run."""

    stored: Manifest | None = None
    """The object as it would be stored; None if the API server rejects it."""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePods:
    """The pods of one replica role, as the operator creates them."""

    name: str
    count: int
    needed: int
    """The number of pods that must be scheduled before the job starts."""
    pod: Manifest
    """The manifest of the first pod."""

    @property
    def spec(self) -> Manifest:
        """The spec of the first pod."""
        return get_mapping(self.pod, "spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """The task to check, with the manifests built from it, or the problems that prevent building them."""

    name: str = ""
    """The name of the task; empty for the default task."""
    template: str = ""
    """The PodTemplate that the task names; empty for the platform's default."""
    dialect: Dialect = table.DEFAULT
    """The dialect, which is the kind of the job; the default one if the task cannot be read."""
    dialect_reasons: Sequence[str] = ()
    """The reasons for the dialect, as sentences; empty if the cluster leaves no choice."""
    framework: str = TORCH
    plan: Plan | None = None
    """The manifests; None if the task cannot be planned."""
    roles: Sequence[RolePods] = ()
    problems: Sequence[Problem] = ()

    @property
    def port(self) -> int:
        """The port of a pod to which the other pods connect first."""
        return MPI_SSH_PORT if self.framework == MPI else self.dialect.port.number

    @property
    def job(self) -> Manifest | None:
        """The manifest of the job; None if the task cannot be planned."""
        return self.plan.job if self.plan is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of an access test of a store or a connector."""

    what: str
    """The tested URL or address."""
    problem: str = ""
    """The problem; empty if the test succeeded."""
    is_tried: bool = True
    """False if the problem prevented the test."""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the checks test: objects of the cluster, the planned task, and results of requests and probes."""

    namespace: str
    flyte_namespace: str = "flyte"
    settings: Settings = field(default_factory=Settings)
    gang: GangSettings = field(default_factory=GangSettings)
    """The gang settings that would apply to the job, derived from the settings and the cluster."""
    gang_reasons: Sequence[str] = ()
    """The reasons for the selected gang scheduler, as sentences."""
    gang_problems: Sequence[Problem] = ()
    """The reasons why the gang settings do not fit the cluster; the connector would reject the task."""
    unreachable: str = ""
    """The sentence that states why the API server cannot be used; empty if it can."""
    unreachable_remedy: str = ""
    version: str = ""
    """The version of the API server: ``v1.34.7``."""
    ahead: timedelta = timedelta(0)
    """The offset of the cluster's clock; positive if it is ahead of the local clock."""
    now: datetime = datetime(1970, 1, 1, tzinfo=timezone.utc)
    """The time of the cluster's clock."""
    objects: Mapping[Subject, Sequence[Manifest]] = field(default_factory=dict)
    unseen: Mapping[Subject, NotReadable] = field(default_factory=dict)
    """The subjects that could not be read, each with the reason."""
    task: PlannedTask = field(default_factory=PlannedTask)
    job_reply: DryRunReply = field(default_factory=DryRunReply)
    invalid_reply: DryRunReply = field(default_factory=DryRunReply)
    """The reply to a dry run of a job that the operator's webhook should reject."""
    pod_replies: Mapping[str, DryRunReply] = field(default_factory=dict)
    """The replies to dry runs of pods, by replica role."""
    missing_permissions: Mapping[str, Sequence[Permission]] = field(default_factory=dict)
    """The missing permissions by the ServiceAccount of a connector, ``NAMESPACE/NAME``."""
    release: str = ""
    """The release of this program; empty if unknown."""
    stores: Sequence[ProbeResult] = ()
    connector: ProbeResult | None = None
    """The result for the specified connector; None if no connector was specified."""

    def get_objects(self, subject: Subject) -> Sequence[Manifest]:
        """Return the objects of a kind of fact, such as `Subject.NODES`; empty if they were not read."""
        return self.objects.get(subject, ())

    def find_object(self, subject: Subject, name: str) -> Manifest | None:
        """Return the object with this name among those of a subject, such as `Subject.SERVICES`, or None."""
        found = (each for each in self.get_objects(subject) if get_text(each, "metadata", "name") == name)
        return next(found, None)

    def list_missing_names(self, subject: Subject, names: Iterable[str]) -> Sequence[str]:
        """Return those of `names` that no object of the subject has, sorted; empty names are ignored."""
        there = {get_text(each, "metadata", "name") for each in self.get_objects(subject)}
        return sorted({*names} - there - {""})

    def list_api_groups(self) -> set[str]:
        """Return the API groups that the cluster serves."""
        return {get_text(each, "name") for each in self.get_objects(Subject.GROUPS)}
