"""Lookup of jobs, replicas and ranks by the names that users type."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from operator import attrgetter
from typing import Final, Protocol, TypeVar

from backend_plugin.core.errors import BackendError
from backend_plugin.core.observed import Job
from backend_plugin.core.task_annotation import TaskAnnotation
from backend_plugin.core.values import join_first

_NAMED: Final = 6
# The number of latest jobs to compare with a mistyped name. A comparison takes up to 0.2 ms and blocks the
# server. A user rarely needs an older job.
_COMPARED: Final = 100
# The longest name of a Kubernetes object; longer input is not compared.
_LONGEST: Final = 253
# The least similarity of a suggested name. It is high because all generated names have the same structure.
_ALIKE: Final = 0.8


class JobNotFound(BackendError):
    """The name does not match any job; the message suggests similar names."""


class AmbiguousJob(BackendError):
    """Several jobs match the name; the message lists them."""


class RankNotFound(BackendError):
    """The job does not have the rank or replica; the message lists its ranks or replicas."""


class NamedJob(Protocol):
    """The fields of a job that `find_job` uses."""

    namespace: str
    name: str
    origin: TaskAnnotation | None


Known = TypeVar("Known", bound=NamedJob)


def find_job(word: str, jobs: Iterable[Known]) -> Known:
    """Return the job that a user identifies with `word`.

    `word` is the name of the job, else the name of its Flyte execution, else the start of the job's name. A
    prefix ``namespace/`` limits the search to this namespace. If all matches are attempts of one Flyte node,
    return the last attempt. Raises `JobNotFound` or `AmbiguousJob`.
    """
    namespace, slash, name = word.rpartition("/")
    among = [job for job in jobs if not slash or job.namespace == namespace]
    matches = [job for job in among if job.name == name]
    if name and not matches:
        matches = [job for job in among if job.origin is not None and job.origin.run.execution == name]
        matches = matches or [job for job in among if job.name.startswith(name)]
    if not matches:
        raise JobNotFound(_format_no_match(word, name, among))
    last = _select_last_attempt(matches)
    if last is None:
        names = [f"{job.namespace}/{job.name}" for job in matches]
        raise AmbiguousJob(f"{word} matches {join_first(names, _NAMED)}; write more of the name")
    return last


def find_replica_ranks(job: Job, role: str, index: int) -> range | None:
    """Return the ranks of a replica; None for an initializer, or if a rendezvous assigns the ranks."""
    if role in job.initializers or _has_rendezvous_ranks(job):
        return None
    each = job.nproc_per_node or 1
    masters = sum(group.replicas for group in job.groups if group.role == "master")
    first = (index + (masters if role == "worker" else 0)) * each
    return range(first, first + each)


def _has_rendezvous_ranks(job: Job) -> bool:
    return job.elastic and (job.replicas != 1 or job.nproc_per_node is None)


def list_replicas_with_rank(job: Job, rank: int) -> frozenset[str]:
    """Return the names of the replicas that may have a rank, such as ``worker-0``.

    These are all replicas if a rendezvous assigns the ranks. Raises `RankNotFound` if the job does not have
    the rank.
    """
    total = job.replicas * (job.nproc_per_node or 1)
    if not 0 <= rank < total:
        raise RankNotFound(f"job {job.name} has no rank {rank}; it has {_format_range('rank', total)}")
    return frozenset(
        f"{group.role}-{index}"
        for group in job.groups
        for index in range(group.replicas)
        if (ranks := find_replica_ranks(job, group.role, index)) is None or rank in ranks
    )


def _format_range(what: str, count: int) -> str:
    return f"{what}s 0 to {count - 1}" if count > 1 else f"{what} 0 only"


def list_replicas(job: Job) -> Sequence[str]:
    """Return the names of all replicas in the order of their ranks."""
    groups = sorted(job.groups, key=lambda group: group.role == "worker")
    return [f"{group.role}-{index}" for group in groups for index in range(group.replicas)]


def list_initializers(job: Job) -> Sequence[str]:
    """Return the names of the pods that load data before the replicas are created."""
    return [f"{role}-0" for role in job.initializers]


def require_node(job: Job, number: int) -> str:
    """Return the name of the replica with this node number, which counts from 0 in the order of the ranks.

    Raises `RankNotFound` if the job has fewer replicas.
    """
    replicas = list_replicas(job)
    if not 0 <= number < len(replicas):
        has = _format_range("node", len(replicas))
        raise RankNotFound(f"job {job.name} has no node {number}; it has {has}")
    return replicas[number]


def require_replica(job: Job, name: str) -> str:
    """Return `name` if a replica or an initializer of the job has this name; else raise `RankNotFound`."""
    if name in {*list_initializers(job), *list_replicas(job)}:
        return name
    has = ", ".join(
        f"{group.role}-0" if group.replicas == 1 else f"{group.role}-0 to {group.role}-{group.replicas - 1}"
        for group in job.groups
    )
    raise RankNotFound(f"job {job.name} has no replica {name}; it has {has or 'none'}")


def _select_last_attempt(jobs: Sequence[Known]) -> Known | None:
    """Return the last attempt; None if the jobs are not attempts of one Flyte node."""
    if len(jobs) == 1:
        return jobs[0]
    runs = [job.origin.run for job in jobs if job.origin is not None]
    by_attempt = dict(zip((run.attempt for run in runs), jobs, strict=False))
    nodes = set(map(attrgetter("namespace", "project", "domain", "execution", "node_id"), runs))
    return by_attempt[max(by_attempt)] if len(nodes) == 1 and len(by_attempt) == len(jobs) else None


def _format_no_match(word: str, name: str, among: Sequence[NamedJob]) -> str:
    word = word[:_LONGEST]
    if not among:
        return f"there is no job {word}, and no other job" + (" in that namespace" if "/" in word else "")
    # Compare the typed name with each whole name, and with the prefix of each name that has the same length.
    latest = among[-_COMPARED:] if len(name) <= _LONGEST else ()
    near = {job.name[:end]: job.name for job in latest for end in (None, len(name))}
    close = [near[each] for each in get_close_matches(name, near, n=3, cutoff=_ALIKE)]
    if close:
        return f"there is no job {word}; did you mean {' or '.join(dict.fromkeys(close))}?"
    existing = ", ".join(job.name for job in among[:_NAMED])
    return f"there is no job {word}" + (f"; the existing jobs are {existing}" if len(among) <= _NAMED else "")
