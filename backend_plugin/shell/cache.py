"""The cache of cluster objects, by job: the only source of observed state in the server."""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from backend_plugin.core import names, task_annotation
from backend_plugin.core.dialects import table
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.judging import job_events
from backend_plugin.core.judging.last_transition import get_last_transition_time
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.core.scheduling import gang_annotation, registry
from backend_plugin.shell.cached_job import AttemptIndex, CachedJob, Key
from backend_plugin.shell.cluster import ClusterUnavailable, ObjectName, Record
from backend_plugin.shell.queue_positions import QueuePositions
from backend_plugin.shell.together import timeout

if TYPE_CHECKING:
    from backend_plugin.core.job import Attempt

# The phase of a job depends only on its latest events; a job that restarts for a day has thousands.
_MAX_EVENTS: Final = 50
_ROUTINE: Final = (
    {"Scheduled", "Pulling", "Pulled", "Created", "SuccessfulCreate", "SuccessfulDelete"}
    | {"SuccessfulCreatePod", "SuccessfulDeletePod", "SuccessfulCreateService", "SuccessfulDeleteService"},
    {"Started", "Killing"},
)
"""Reasons of routine events, which are removed first if a job has too many events. A large job has several
routine events for each pod, and they must not displace other events, such as a preemption. The events of the
second set show that a pod has run, so they are kept longer."""
# Maximum number of gone jobs in the cache, because a user can create and delete any number of jobs. A job
# takes five kilobytes or more. For a job that is no longer in the cache, the API server and the object store
# are queried again.
_MAX_GONE: Final = 2_000
_FIELDS: Final[Mapping[type[Record], str]] = {Pod: "pods", PodGroup: "pod_groups", Event: "events"}
"""The attribute of `CachedJob` that contains the objects of each kind."""


Listener: TypeAlias = Callable[[CachedJob], None]


class Cache:
    """A cache of the objects that a watch delivers, with one entry per job; implements `cluster.Sink`."""

    def __init__(
        self,
        now: Callable[[], datetime],
        lag: Callable[[str, float], None] = lambda _, __: None,
        describe_failures: Callable[[], str] = lambda: "",
    ) -> None:
        """Create an empty cache.

        Args:
            now: Returns the current time.
            lag: Called with the kind and the age in seconds of each new state of a job or pod from the watch.
            describe_failures: Returns the reasons why the watch cannot list objects; empty without failures.
        """
        self._now = now
        self._lag = lag
        self.describe_failures = describe_failures
        self._entries: dict[Key, CachedJob] = {}
        self._by_node = AttemptIndex()
        self._queues = QueuePositions()
        self._places: dict[Key, str] = {}
        """The job name of each placeholder pod, by namespace and name of the pod, which reserves capacity."""
        self._gone: dict[Key, None] = {}
        """The keys of jobs that were found not to exist, the earliest first. A new job may reuse a key."""
        self._complete: set[type[Record]] = set()
        self._listeners: list[Listener] = []
        self.removal_listeners: list[Listener] = []
        """Functions that are called with each entry that is removed from the cache."""
        self.ready = asyncio.Event()
        """Set once all jobs and pods have been listed."""

    async def wait_until_ready(self, seconds: float) -> None:
        """Wait until all jobs and pods have been listed.

        Raises:
            ClusterUnavailable: If this takes over `seconds`; the message contains the reason.
        """
        try:
            async with timeout(seconds):
                await self.ready.wait()
        except asyncio.TimeoutError as late:
            raise ClusterUnavailable(self.describe_incompleteness()) from late

    def describe_incompleteness(self) -> str:
        """Return the reason why not all jobs and pods have been listed yet; empty if all have been listed."""
        if self.ready.is_set():
            return ""
        failures = self.describe_failures()
        return "the server has not listed all jobs and pods yet" + (f": {failures}" if failures else "")

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[CachedJob]:
        return iter(list(self._entries.values()))

    def get(self, key: Key) -> CachedJob | None:
        """Return the cached job with this key; None if there is none."""
        return self._entries.get(key)

    def get_attempts(self, run: "Attempt") -> "Mapping[CachedJob, Attempt]":
        """Return the cached jobs of the Flyte node of the attempt `run`, each with its own attempt."""
        return self._by_node.get_attempts(run)

    def is_complete(self, kind: type[Record]) -> bool:
        """True if all objects of this kind have been listed."""
        return kind in self._complete

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each job that changes, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ---- changes from the watch

    def replace_records(self, kind: type[Record], records: Iterable[tuple[str, Record]]) -> None:
        """Replace all cached objects of one kind by `records`.

        A cached job that is not in `records` stays in the cache, marked `unconfirmed`, until the API server
        confirms its deletion.
        """
        listed = [*records]
        if kind is Job:
            self._mark_missing({(namespace, record.name) for namespace, record in listed})
            for namespace, record in listed:
                self.put_record(namespace, record)
        else:
            self._replace_objects(kind, listed)
        if kind is PodGroup:
            self._recheck_companions()
        self._complete.add(kind)
        if {Job, Pod} <= self._complete:
            self.ready.set()

    def _mark_missing(self, listed: Container[Key]) -> None:
        """Mark the cached jobs that are not in `listed`, so that the reconciler checks if they are gone."""
        for entry in self:
            if entry.exists and entry.key not in listed:
                entry.unconfirmed, entry.undisturbed = True, ()
                self._notify_listeners(entry)

    def _replace_objects(self, kind: type[Record], records: Iterable[tuple[str, Record]]) -> None:
        """Replace all cached pods, pod groups or events; call the listeners only for jobs that changed."""
        field = _FIELDS[kind]
        before = self._clear_objects(kind, field)
        added = [self._add_record(namespace, record) for namespace, record in records]
        for each in dict.fromkeys([*before, *added]):
            if each is not None and getattr(each, field) != before.get(each, ()):
                self._notify_listeners(each)
                self._remove_if_empty(each)

    def _clear_objects(self, kind: type[Record], field: str) -> Mapping[CachedJob, Sequence[Record]]:
        if kind is Pod:
            self._places.clear()
        if kind is PodGroup:
            self._queues.clear()
        before = {each: getattr(each, field) for each in self if getattr(each, field)}
        for each in before:
            setattr(each, field, ())
            each.undisturbed = ()
        return before

    def _recheck_companions(self) -> None:
        """Reset `accompanied` of jobs without a pod group, so that the reconciler creates missing ones."""
        for entry in self:
            if entry.accompanied and not entry.pod_groups:
                entry.accompanied = False
                self._notify_listeners(entry)

    def put_record(self, namespace: str, record: Record) -> None:
        """Add an object to the cache, or replace its earlier version."""
        if isinstance(record, Job):
            self._put_job(self._get_or_create(namespace, record.name), record)
        elif (of := self._add_record(namespace, record)) is not None:
            self._notify_listeners(of)

    def _add_record(self, namespace: str, record: Record) -> CachedJob | None:
        """Add an object to its job's entry, and return the entry; None if the object belongs to no job."""
        if isinstance(record, Pod):
            if not record.job_name:
                return None
            entry = self._get_or_create(namespace, record.job_name)
            self._put_pod(entry, record)
            return entry
        cached = self._find_entry(namespace, record.name)
        if isinstance(record, PodGroup):
            return self._put_group(namespace, cached, record)
        if isinstance(record, Event) and cached is not None:
            cached.events, cached.undisturbed = (*_select_events(cached.events), record), ()
        return cached

    def _put_group(self, namespace: str, cached: CachedJob | None, group: PodGroup) -> CachedJob | None:
        self._queues.put_group(namespace, group)
        # A foreign Workload only affects queue positions. It belongs to no job, even if it has a job's name.
        if cached is None or (group.foreign and group.kind != "PodGroup"):
            return None
        cached.pod_groups = (*(each for each in cached.pod_groups if _is_other(each, group)), group)
        return cached

    def _put_pod(self, entry: CachedJob, pod: Pod) -> None:
        if pod.place:
            self._places[entry.namespace, pod.name] = pod.job_name
        before: Pod | None = None
        # Keep the position, because `is_still_undisturbed` compares pods by position.
        for at, each in enumerate(entry.pods):
            if each.name == pod.name:
                before, entry.pods = each, (*entry.pods[:at], pod, *entry.pods[at + 1 :])
                break
        else:
            entry.pods = (*entry.pods, pod)
        self._record_lag(before, pod)

    def drop_record(self, kind: type[Record], name: ObjectName) -> None:
        """Remove a deleted object; a deleted job stays in the cache and is marked as gone."""
        if kind is Job:
            entry = self._entries.get((name.namespace, name.name))
            if entry is not None and entry.job is not None and name.uid in (None, entry.job.uid):
                self.mark_deleted(entry)
            return
        entry = self._find_entry(name.namespace, name.name)
        if kind is Pod:
            self._places.pop((name.namespace, name.name), None)
        if kind is PodGroup:
            self._queues.drop_group(name.uid)
        if entry is not None and kind is not Event:
            self._drop_object(entry, kind, name)
            self._notify_listeners(entry)
            self._remove_if_empty(entry)

    def _drop_object(self, entry: CachedJob, kind: type[Record], name: ObjectName) -> None:
        if kind is Pod:
            # A new pod of the same name has another uid and stays.
            entry.pods = tuple(
                pod for pod in entry.pods if pod.name != name.name or name.uid not in (None, pod.uid)
            )
        else:
            # Compare uids, because a Workload and a PodGroup of a job can both have its name.
            entry.pod_groups = tuple(
                each for each in entry.pod_groups if each.uid and name.uid not in (None, "", each.uid)
            )
            # The deleted group may be that of an earlier job of this name; this job may then have none.
            entry.accompanied = False

    def _get_or_create(self, namespace: str, name: str) -> CachedJob:
        entry = self._entries.get((namespace, name))
        if entry is None:
            entry = self._entries[namespace, name] = CachedJob(namespace, name, self._queues)
        return entry

    def _remove_if_empty(self, entry: CachedJob) -> None:
        """Remove the entry if its job was never in the cache and all other objects of the job are deleted.

        Without a job, no later event removes the entry.
        """
        if not (entry.is_observed or entry.has_objects):
            self.forget(entry)

    def _remove_entry(self, entry: CachedJob) -> None:
        del self._entries[entry.key]
        self._by_node.remove(entry)
        for listener in self.removal_listeners:
            listener(entry)

    def _put_job(self, entry: CachedJob, job: Job) -> None:
        # The job may arrive twice: from the response to its creation and from the watch, or in a relist.
        if entry.job == job and entry.gone is None and not entry.unconfirmed:
            return
        self._record_lag(entry.job, job)
        entry = self._replace_outdated(entry, job)
        if entry.job is None or entry.job.annotations != job.annotations:
            self._by_node.remove(entry)
            entry.origin = task_annotation.read(job.annotations, entry.namespace)
            entry.queue = gang_annotation.read_gang_summary(job.annotations).queue
            self._by_node.add(entry)
        entry.output_prefix = job.annotations.get(names.OUTPUT_PREFIX, "")
        entry.job, entry.gone, entry.unconfirmed, entry.undisturbed = job, None, False, ()
        self._notify_listeners(entry)

    def _replace_outdated(self, entry: CachedJob, job: Job) -> CachedJob:
        """Return `entry`, or a new entry for `job` if `entry` belongs to an earlier job of the same name."""
        if entry.job is None or entry.job.uid == job.uid:
            return entry
        self._remove_entry(entry)
        new = self._get_or_create(*entry.key)
        # Only pods that name the uid of the new job as owner belong to it.
        new.pods = tuple(pod for pod in entry.pods if job.uid in pod.owners)
        return new

    def _find_entry(self, namespace: str, name: str) -> CachedJob | None:
        """Return the entry of the job to which an object with this name belongs; None if there is none."""
        name = self._places.get((namespace, name)) or registry.parse_job_name(name)
        entry = self._entries.get((namespace, name))
        return entry or self._entries.get((namespace, table.parse_job_name(name)))

    # ---- changes from API requests

    def get_last_record(self, key: Key) -> Job | None:
        """Return the job as it was last received; None if it is not in the cache."""
        entry = self._entries.get(key)
        return None if entry is None else entry.job

    def merge_fetched_job(self, namespace: str, job: Job, last: Job | None, *, is_new: bool = False) -> None:
        """Add a job from an API response, unless the watch has changed the cached job since the request.

        A change from the watch may be newer than the response. If the change is older, the watch delivers the
        newer state later.

        Args:
            namespace: The namespace of the job.
            job: The job in the response.
            last: The cached job before the request, from `get_last_record`.
            is_new: True if this server has just created the job; the metrics then get its waiting time and
                its start time.
        """
        if self.get_last_record((namespace, job.name)) is last:
            self.put_record(namespace, job)
        if is_new and (entry := self._entries.get((namespace, job.name))) is not None:
            entry.unmeasured = 2

    def mark_deleted(self, entry: CachedJob) -> None:
        """Mark a job as gone; call this only if it is certain that the job does not exist."""
        entry.gone, entry.unconfirmed, entry.undisturbed = entry.gone or self._now(), False, ()
        self._gone[entry.key] = None
        self._notify_listeners(entry)
        while len(self._gone) > _MAX_GONE:
            first = next(iter(self._gone))
            del self._gone[first]
            if (oldest := self._entries.get(first)) is not None and oldest.gone is not None:
                self._remove_entry(oldest)

    def add_missing_job(self, key: Key, output_prefix: str) -> CachedJob:
        """Add a job that does not exist, marked as gone; `output_prefix` is from the client's reference."""
        entry = self._get_or_create(*key)
        entry.output_prefix = output_prefix
        self.mark_deleted(entry)
        return entry

    def set_task_outputs(self, entry: CachedJob, files: Sequence[ErrorFile], *, outputs: bool | None) -> None:
        """Store the error files of a job, and whether its outputs exist (None: they could not be read)."""
        entry.error_files, entry.outputs = tuple(files), outputs
        entry.reading_outputs, entry.read = False, True
        self._notify_listeners(entry)

    def forget(self, entry: CachedJob) -> None:
        """Remove an entry from the cache."""
        if self._entries.get(entry.key) is entry:
            self._remove_entry(entry)
            self._gone.pop(entry.key, None)

    def _record_lag(self, before: Job | Pod | None, record: Job | Pod) -> None:
        """Call the function `lag` with the seconds that the watch took to deliver a change of a job or pod.

        Do nothing until all jobs and pods have been listed, because listed objects may have changed long ago.
        """
        if not self.ready.is_set():
            return
        at = get_last_transition_time(record)
        if at is not None and (before is None or get_last_transition_time(before) != at):
            self._lag(type(record).__name__, max(0.0, (self._now() - at).total_seconds()))

    def _notify_listeners(self, entry: CachedJob) -> None:
        entry.version += 1
        for listener in self._listeners:
            listener(entry)


def _select_events(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events of a job to keep when an event is added: all, if they are fewer than `_MAX_EVENTS`.

    Otherwise leave out the oldest routine event, such as `Pulled` (see `_ROUTINE`). Without a routine event,
    leave out the oldest events, but keep the latest two that servers of this backend have written (see
    `core.judging.job_events`), because a server writes such an event again if its cache does not contain it.
    """
    if len(events) < _MAX_EVENTS:
        return events
    for reasons in _ROUTINE:
        at = next((at for at, each in enumerate(events) if each.reason in reasons), None)
        if at is not None:
            return (*events[:at], *events[at + 1 :])
    own = [each for each in events[: -_MAX_EVENTS + 1] if job_events.is_job_event(each)]
    return (*own[-2:], *events[-_MAX_EVENTS + 1 :])


def _is_other(group: PodGroup, record: PodGroup) -> bool:
    return (group.api, group.kind, group.name) != (record.api, record.kind, record.name)
