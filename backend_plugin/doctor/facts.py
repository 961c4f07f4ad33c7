"""What was seen of a cluster, of a task, and of what lies around them.

Lives here: values. Does not: looking, which `gathering` does, and what they mean; see `checks`.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from backend_plugin.core.errors import Problem
from backend_plugin.core.scheduling.platform import Ganging
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Manifest


class Subject(enum.Enum):
    """Something that is looked at, by what people call it."""

    NAMESPACE = "the namespace"
    GROUPS = "the API groups"
    JOB_KINDS = "the kinds of kubeflow.org"
    JOB_SCHEMA = "the CustomResourceDefinition of PyTorchJobs"
    DEPLOYMENTS = "Deployments of all namespaces"
    JOBS = "PyTorchJobs"
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
    SCHEDULER_CONFIG = "ConfigMaps beside schedulers"
    WAITING_FOR = "pods of the gang's scheduler"
    DNS = "the Service of the cluster's DNS"
    DNS_ENDPOINTS = "the endpoints of the cluster's DNS"
    SERVICES = "Services of Flyte's namespace"
    ENDPOINTS = "endpoints of Flyte's namespace"
    LOCAL_QUEUES = "LocalQueues of Kueue"
    CLUSTER_QUEUES = "ClusterQueues of Kueue"
    WORKLOAD_PRIORITIES = "WorkloadPriorityClasses of Kueue"
    VOLCANO_QUEUES = "Queues of Volcano"
    KAI_QUEUES = "Queues of KAI"
    RIGHTS = "what the connector's account may do"
    JOB_TRIAL = "a dry run of the job"
    INVALID_TRIAL = "a dry run of a job that the operator's webhook refuses"
    POD_TRIALS = "a dry run of the job's pods"
    ROLES = "the pods of the task"
    STORES = "output prefixes"
    CONNECTOR = "the address of a connector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A rule of a role."""

    group: str
    resource: str
    """With its subresource: ``pods/log``."""
    verbs: Sequence[str]
    namespace: str = ""
    """Empty: all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """The reason why something could not be looked at."""

    reason: str
    remedy: str = ""
    rules: Sequence[Permission] = ()
    """The missing permissions; empty if the reason is another one."""
    user: str = ""
    """The user that lacks them; empty if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """The missing permissions of a connector's ServiceAccount."""

    namespace: str
    name: str
    rules: Sequence[Permission]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the API server says to a dry run."""

    stored: Manifest | None = None
    """The object as it would be stored; None where it is refused."""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePods:
    """The pods of one role, as the operator makes them."""

    name: str
    """``master`` or ``worker``."""
    count: int
    needed: int
    """How many of them must find a place before the job begins."""
    pod: Manifest
    """The first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What would be asked of the cluster."""

    name: str = ""
    """Of the task that was named; empty: one that stands for all."""
    template: str = ""
    """The PodTemplate that it names; empty: the platform's."""
    job: Manifest | None = None
    """None where it cannot be planned."""
    beside: Sequence[Manifest] = ()
    roles: Sequence[RolePods] = ()
    problems: Sequence[Problem] = ()
    """Why it cannot be planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Something outside the cluster's API that was tried."""

    what: str
    """A URL, or an address."""
    trouble: str = ""
    """Empty: it went well."""
    is_tried: bool = True
    """False if the trouble kept it from being tried."""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the checks know."""

    namespace: str
    flyte_namespace: str = "flyte"
    settings: Settings = field(default_factory=Settings)
    gang: Ganging = field(default_factory=Ganging)
    """Who would schedule the job, by what was said and what the cluster has."""
    gang_reasons: Sequence[str] = ()
    gang_problems: Sequence[Problem] = ()
    """What the cluster has against it, for which the backend would refuse the task."""
    unreachable: str = ""
    """Why nothing could be asked."""
    unreachable_remedy: str = ""
    """What to do about that, where we know; empty where others say why."""
    version: str = ""
    """Of the API server: ``v1.34.7``."""
    ahead: timedelta = timedelta(0)
    """By how much its clock is ahead of ours."""
    now: datetime = datetime(1970, 1, 1, tzinfo=timezone.utc)
    """By its clock."""
    seen: Mapping[Subject, Sequence[Manifest]] = field(default_factory=dict)
    unseen: Mapping[Subject, Unseen] = field(default_factory=dict)
    """The subjects that could not be looked at, each with the reason."""
    task: Task = field(default_factory=Task)
    job_reply: Reply = field(default_factory=Reply)
    invalid_reply: Reply = field(default_factory=Reply)
    pod_replies: Mapping[str, Reply] = field(default_factory=dict)
    """By role."""
    lacking: Sequence[Lacking] = ()
    """The ServiceAccounts of connectors that lack permissions."""
    release: str = ""
    """Our own; empty where it cannot be told."""
    stores: Sequence[Tried] = ()
    connector: Tried | None = None
    """None where none was named."""

    def of(self, subject: Subject) -> Sequence[Manifest]:
        """What there is of it; nothing where it was not looked at."""
        return self.seen.get(subject, ())
