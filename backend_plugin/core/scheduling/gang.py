"""A gang: the replicas of a job that must be placed together, and their resource requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend_plugin.core.dialects.table import get_dialect
from backend_plugin.core.job import ReplicaRole, TrainingJob
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.scheduling import pod_requests
from backend_plugin.core.scheduling.pod_requests import Amounts
from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRole:
    """The replicas of one role in a gang."""

    role: ReplicaRole
    count: int
    min_count: int
    """The number of replicas of this role that must be placed before any replica of the job starts."""
    request: Amounts
    """The requests of one replica."""
    spec: Manifest
    """The pod spec of these replicas."""
    defaults: Amounts = field(default_factory=dict)
    """The default requests of a container, from the LimitRanges of its namespace."""

    @property
    def name(self) -> str:
        """The role in lower case, as it occurs in pod names."""
        return self.role.value.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """The replicas of a job that must be placed together."""

    name: str
    """The name of the job, which is unique for an attempt."""
    namespace: str
    members: Sequence[GangRole]
    identity: Mapping[str, str] = field(default_factory=dict)
    """The identity label of the job, which its pods have too."""
    scheduler_name: str = ""
    """The `schedulerName` of the pods; empty if it is left unchanged."""
    queue: str = ""
    admission_queue: str = ""
    """The queue that admits the job before its scheduler places the pods; empty if there is no admission."""
    priority_class_name: str = ""
    """The author's priority class for the whole gang."""
    timeout_seconds: int | None = None
    initializers: Mapping[str, Amounts] = field(default_factory=dict)
    """The requests of each initializer by its name, in the order of the JobSet.

    Initializers are not members of the gang. The requests of an initializer are empty if a runtime of the
    cluster determines them.
    """

    @property
    def min_member(self) -> int:
        """The number of replicas that must be placed before any of them starts."""
        return sum(member.min_count for member in self.members)

    @property
    def min_resources(self) -> dict[str, str]:
        """The total requests of the replicas that `min_member` counts."""
        requests = (pod_requests.scale_amounts(member.min_count, member.request) for member in self.members)
        return pod_requests.format_amounts(pod_requests.add_amounts(requests))

    @property
    def common_priority(self) -> str:
        """The priority class of the gang, or else the class that all its pods share; empty without either."""
        of_pods = {get_text(member.spec, "priorityClassName") for member in self.members}
        return self.priority_class_name or (of_pods.pop() if len(of_pods) == 1 else "")


def build_gang_roles(job: TrainingJob, draft: JobDraft, defaults: Amounts) -> Sequence[GangRole]:
    """Return the roles of a gang; `defaults` are the default requests of a container in its namespace."""
    roles, dialect = [group.role for group in job.groups], get_dialect(draft.dialect)
    least = compute_min_counts(job)
    specs = {role: get_mapping(draft.pods[role], "spec") for role in roles}
    return [
        GangRole(
            role=group.role,
            count=group.replicas,
            min_count=least[group.role],
            request=pod_requests.compute_pod_requests(
                specs[group.role], dialect.list_added_containers(group.role, roles), defaults
            ),
            spec=specs[group.role],
            defaults=defaults,
        )
        for group in job.groups
    ]


def build_initializer_requests(job: TrainingJob, draft: JobDraft, defaults: Amounts) -> Mapping[str, Amounts]:
    """Return the requests of each initializer of a job by its name; see `GangSpec.initializers`."""
    spec: Manifest = {"containers": [{"resources": {"requests": draft.initializer_requests}}]}
    request = pod_requests.compute_pod_requests(spec, (), defaults)
    if job.train_options.runtime:
        request = pod_requests.NOTHING
    names = get_dialect(draft.dialect).initializers
    return {name: request for kind, name in names.items() if kind in job.sources}


def compute_min_counts(job: TrainingJob) -> Mapping[ReplicaRole, int]:
    """Return the number of replicas of each role that must be placed before any replica starts.

    The replicas are counted by role, the master first, until the minimum of the gang is reached.
    """
    fewest = job.elastic.min_replicas if job.elastic else sum(group.replicas for group in job.groups)
    remaining = job.gang.min_member or fewest
    counts = {}
    for group in job.groups:
        counts[group.role] = min(group.replicas, remaining)
        remaining -= counts[group.role]
    return counts
