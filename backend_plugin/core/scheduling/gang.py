"""A job as those see it who start all of its replicas together, or none.

Lives here: who belongs to the gang, how many must find a place, and what they need. Does not: how any
scheduler is told; see `schedulers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend_plugin.core import job as vocabulary
from backend_plugin.core.job import Role, TrainingJob
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling import requests
from backend_plugin.core.scheduling.requests import Amounts
from backend_plugin.core.values import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The replicas of one role."""

    role: Role
    count: int
    min_count: int
    """How many of them must find a place before any replica starts."""
    request: Amounts
    """Of one replica."""
    spec: Manifest
    """Of its pods."""

    @property
    def name(self) -> str:
        """The role, as pods are called after it."""
        return self.role.value.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """All replicas of a job."""

    name: str
    """The job's, which no other attempt has."""
    namespace: str
    members: Sequence[Member]
    identity: Mapping[str, str] = field(default_factory=dict)
    """The label by which its pods are ours."""
    scheduler_name: str = ""
    """Whom the pods wait for; empty where it does not matter."""
    queue: str = ""
    admission_queue: str = ""
    """Where the job waits to be let go, before its scheduler sees it; empty: nowhere."""
    priority_class_name: str = ""
    """What the author says of the gang as a whole."""
    timeout_seconds: int | None = None

    @property
    def min_member(self) -> int:
        """How many must find a place before any starts."""
        return sum(member.min_count for member in self.members)

    @property
    def min_resources(self) -> dict[str, str]:
        """What those need, all together."""
        asked = (requests.times(member.min_count, member.request) for member in self.members)
        return requests.written(requests.summed(asked))

    @property
    def common_priority(self) -> str:
        """The priority of the gang: what is said of it, or of each of its pods alike; empty without one."""
        of_pods = {text(member.spec, "priorityClassName") for member in self.members}
        return self.priority_class_name or (of_pods.pop() if len(of_pods) == 1 else "")


def members(job: TrainingJob, manifest: Manifest, defaults: Amounts = requests.NOTHING) -> Sequence[Member]:
    """The replicas of the PyTorchJob that a job has become; `defaults` as in `requests.of_replica`."""
    specs = section(manifest, "spec", "pytorchReplicaSpecs")
    roles = [group.role for group in job.groups]
    least = min_counts(job)
    found = []
    for group in job.groups:
        spec = section(specs, group.role.value, "template", "spec")
        found.append(
            Member(
                role=group.role,
                count=group.replicas,
                min_count=least[group.role],
                request=requests.of_replica(spec, group.role, roles, defaults),
                spec=spec,
            )
        )
    return found


def min_counts(job: TrainingJob) -> Mapping[Role, int]:
    """How many of each role must find a place; the master is among them, whatever the number."""
    said = job.gang or vocabulary.Gang()
    fewest = job.elastic.min_replicas if job.elastic else sum(group.replicas for group in job.groups)
    left = said.min_member or fewest
    counts = {}
    for group in job.groups:
        counts[group.role] = min(group.replicas, left)
        left -= counts[group.role]
    return counts
