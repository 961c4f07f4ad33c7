"""What a cluster was last seen to hold, by job: the one place of truth of a server.

Lives here: records as they arrive, put where their job is. Does not: what they mean, and what to do.
"""

import asyncio
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from backend_plugin.core import origin, turns
from backend_plugin.core.error_files import ErrorFile
from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Event, Job, Observed, Pod, PodGroup, is_replica
from backend_plugin.core.scheduling import table
from backend_plugin.core.told_at import told_at
from backend_plugin.shell.by_node import ByNode
from backend_plugin.shell.cluster import Name, Record
from backend_plugin.shell.queues import Queues

if TYPE_CHECKING:
    from backend_plugin.core.job import Run
    from backend_plugin.core.origin import Origin
    from backend_plugin.core.task_phase import Phase
    from backend_plugin.core.turns import Way
    from backend_plugin.shell.answers import Answer

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""

# A judge reads the latest; a job that restarts for a day has thousands.
_MOST_EVENTS: Final = 50
# Each holds a few kilobytes, and whoever calls can make up references to jobs that never were.
_MOST_GONE: Final = 5_000
_FIELDS: Final[Mapping[type[Record], str]] = {Pod: "pods", PodGroup: "pod_groups", Event: "events"}
"""Where an entry has them."""
_REPLICA: Final = re.compile(r"(?P<job>.+)-(?:master|worker)-\d+")


class Entry:
    """One job, and all that is known of it."""

    __slots__ = (
        "accompanied", "answer", "error_files", "events", "gone", "job", "looking", "name", "namespace",
        "origin", "output_prefix", "outputs",
        "pod_groups", "pods", "queues", "read", "steady", "told", "turned", "unconfirmed", "undisturbed",
        "version",
    )  # fmt: skip

    def __init__(self, namespace: str, name: str, queues: Queues | None = None) -> None:
        self.namespace, self.name, self.queues = namespace, name, queues
        self.job: Job | None = None
        self.origin: Origin | None = None
        self.output_prefix = ""
        """Where its attempt writes, as the job says, or whoever asked for one that is not there."""
        self.pods: tuple[Pod, ...] = ()
        self.events: tuple[Event, ...] = ()
        self.pod_groups: tuple[PodGroup, ...] = ()
        self.error_files: tuple[ErrorFile, ...] = ()
        self.outputs: bool | None = None
        """Whether there are outputs; None while nobody knows."""
        self.looking = self.read = False
        """Somebody reads what it has left; it was read."""
        self.told: Phase | None = None
        """What our own log has said last."""
        self.steady: tuple[Job, datetime] | None = None
        """It trains on as this job, with nothing to be done, until then at least."""
        self.undisturbed: tuple[Pod, ...] = ()
        """The pods with which it was seen to train on, as this job and with these events; else none."""
        self.turned: Way | None = None
        """Which way it has gone last, once it has run: that was said on the job."""
        self.gone: datetime | None = None
        """When it was found that there is no such job (any more)."""
        self.unconfirmed = self.accompanied = False
        """A list has left it out, and nobody has asked the cluster itself; what was to stand beside it was
        made, or is there, and nobody may have told us of it yet."""
        self.answer: Answer | None = None
        """What was made of it last."""
        self.version = 0
        """Grows with every change."""

    @property
    def key(self) -> Key:
        """Where it stands in the cache."""
        return self.namespace, self.name

    @property
    def replicas(self) -> tuple[Pod, ...]:
        """The pods that the job owns, as far as the job is known; placeholders are not among them."""
        job = self.job
        return self.pods if job is None else tuple(pod for pod in self.pods if is_replica(pod, job))

    def observed(self) -> Observed:
        """All that is known, as `judge` takes it."""
        groups = self.pod_groups
        if self.queues is not None and any(group.queue for group in groups):
            groups = tuple(self.queues.placed(group) for group in groups)
        return Observed(
            job=None if self.gone else self.job,
            # Nothing else tells whose they are once the job is gone.
            pods=self.replicas if self.gone else self.pods,
            events=self.events,
            pod_groups=groups,
            error_files=self.error_files,
            outputs=self.outputs,
            looking=self.looking,
        )


Listener: TypeAlias = Callable[[Entry], None]


class Cache:
    """The `Sink` of a cluster; everything in it is as the cluster last said."""

    def __init__(
        self, now: Callable[[], datetime], lag: Callable[[str, float], None] = lambda _, __: None
    ) -> None:
        """Empty; `lag` is told how many seconds old each change was when it was seen, by its kind."""
        self._now = now
        self._lag = lag
        self._entries: dict[Key, Entry] = {}
        self._by_node = ByNode()
        self._queues = Queues()
        self._places: dict[Key, str] = {}
        """The job of each pod that holds a place for one, by the pod's namespace and name."""
        self._gone: dict[Key, None] = {}
        """Jobs that were found to be gone, the first one first; some may be back."""
        self._complete: set[type[Record]] = set()
        self._listeners: list[Listener] = []
        self.ready = asyncio.Event()
        """Set once every job and pod that there is has been told."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def of(self, key: Key) -> Entry | None:
        """The entry of a job; None where nothing was ever heard of it."""
        return self._entries.get(key)

    def attempts(self, run: "Run") -> Sequence[Entry]:
        """The jobs of all attempts of the node that `run` is an attempt of."""
        return self._by_node.of(run)

    def is_complete(self, kind: type[Record]) -> bool:
        """Whether every one that there is has been told."""
        return kind in self._complete

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every change, with the entry; gives the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ---- what the cluster says

    def replace(self, kind: type[Record], records: Iterable[tuple[str, Record]]) -> None:
        """All objects of one kind: what is not among them is gone."""
        found = [*records]
        if kind is Job:
            self._miss({(namespace, record.name) for namespace, record in found})
            for namespace, record in found:
                self.put(namespace, record)
        else:
            self._exchange(kind, found)
        if kind is PodGroup:
            self._doubt()
        self._complete.add(kind)
        if {Job, Pod} <= self._complete:
            self.ready.set()

    def _miss(self, there: Container[Key]) -> None:
        """Jobs that a list leaves out are yet to be asked for one by one."""
        for entry in self:
            if entry.job is not None and entry.gone is None and entry.key not in there:
                entry.unconfirmed = True
                self._changed(entry)

    def _exchange(self, kind: type[Record], found: Iterable[tuple[str, Record]]) -> None:
        """What belongs to jobs, as a whole: a job of which nothing has changed is not looked at again."""
        field = _FIELDS[kind]
        if kind is Pod:
            self._places.clear()
        if kind is PodGroup:
            self._queues.clear()
        before = {each: getattr(each, field) for each in self if getattr(each, field)}
        for each in before:
            setattr(each, field, ())
            each.undisturbed = ()
        touched = dict.fromkeys(before)
        for namespace, record in found:
            if (entry := self._add(namespace, record)) is not None:
                touched[entry] = None
        for each in touched:
            if getattr(each, field) != before.get(each, ()):
                self._changed(each)
                self._clear(each)

    def _doubt(self) -> None:
        """What was made beside a job, and is not among all that there is, may have gone unseen."""
        for entry in self:
            if entry.accompanied and not entry.pod_groups:
                entry.accompanied = False
                self._changed(entry)

    def put(self, namespace: str, record: Record) -> None:
        """An object that is new or has changed."""
        if isinstance(record, Job):
            self._put_job(self._entry(namespace, record.name), record)
        elif (of := self._add(namespace, record)) is not None:
            self._changed(of)

    def _add(self, namespace: str, record: Record) -> Entry | None:
        """Put what belongs to a job there; None where that is none of ours."""
        if isinstance(record, Pod):
            if not record.job_name:
                return None
            entry = self._entry(namespace, record.job_name)
            self._put_pod(entry, record)
            return entry
        found = self._about(namespace, record.name)
        if isinstance(record, PodGroup):
            self._queues.put(namespace, record)
            # Who only stands in the same queue has a name of his own.
            if found is None or (record.foreign and record.kind != "PodGroup"):
                return None
            found.pod_groups = (*(each for each in found.pod_groups if _is_other(each, record)), record)
        elif isinstance(record, Event) and found is not None:
            found.events, found.undisturbed = (*_remembered(found.events), record), ()
        return found

    def _put_pod(self, entry: Entry, pod: Pod) -> None:
        if pod.place:
            self._places[entry.namespace, pod.name] = pod.job_name
        before: Pod | None = None
        # Where it was: who has looked at the others knows them by their places.
        for at, each in enumerate(entry.pods):
            if each.name == pod.name:
                before, entry.pods = each, (*entry.pods[:at], pod, *entry.pods[at + 1 :])
                break
        else:
            entry.pods = (*entry.pods, pod)
        self._note(before, pod)

    def drop(self, kind: type[Record], name: Name) -> None:
        """An object that is gone."""
        if kind is Job:
            entry = self._entries.get((name.namespace, name.name))
            if entry is not None and _is_same(entry.job, name):
                self.lost(entry)
        elif kind is Pod:
            entry = self._about(name.namespace, name.name)
            self._places.pop((name.namespace, name.name), None)
            if entry is not None:
                # One that was made anew under its name is another.
                entry.pods = tuple(
                    pod for pod in entry.pods if pod.name != name.name or name.uid not in (None, pod.uid)
                )
                self._changed(entry)
                self._clear(entry)
        elif kind is PodGroup:
            self._queues.drop(name.uid)
            entry = self._about(name.namespace, name.name)
            if entry is not None:
                # A queue's and a gang scheduler's are under the same name, which is the job's.
                gone = [each for each in entry.pod_groups if name.uid in (None, "", each.uid) or not each.uid]
                entry.pod_groups = tuple(each for each in entry.pod_groups if each not in gone)
                entry.accompanied = False  # It may have been that of an earlier job of the name.
                self._changed(entry)
                self._clear(entry)

    def _entry(self, namespace: str, name: str) -> Entry:
        entry = self._entries.get((namespace, name))
        if entry is None:
            entry = self._entries[namespace, name] = Entry(namespace, name, self._queues)
        return entry

    def _clear(self, entry: Entry) -> None:
        """Keep no entry of which nothing is left, and that nobody will ever call gone.

        Its job was forgotten before its pods went, or is yet to be told, and then has an entry of its own.
        """
        is_empty = not (entry.pods or entry.events or entry.pod_groups)
        if entry.job is None and entry.gone is None and is_empty:
            self.forget(entry)

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._by_node.remove(entry)

    def _put_job(self, entry: Entry, job: Job) -> None:
        # One that is made is told of by its answer and by the watch, and all are when they are listed anew.
        if entry.job == job and entry.gone is None and not entry.unconfirmed:
            return
        self._note(entry.job, job)
        if entry.job is not None and entry.job.uid != job.uid:
            # Another job of the same name: nothing that was known is about it, but what says so itself.
            pods = tuple(pod for pod in entry.pods if job.uid in pod.owners)
            self._remove(entry)
            entry = self._entry(*entry.key)
            entry.pods = pods
        if entry.job is None or entry.job.annotations != job.annotations:
            self._by_node.remove(entry)
            entry.origin = origin.read(job.annotations, entry.namespace)
            self._by_node.add(entry)
        entry.output_prefix = job.annotations.get(names.OUTPUT_PREFIX, "")
        entry.job, entry.gone, entry.unconfirmed, entry.undisturbed = job, None, False, ()
        self._changed(entry)

    def _about(self, namespace: str, name: str) -> Entry | None:
        """The job of that name, or that a pod or a group of that name is of."""
        name = self._places.get((namespace, name)) or table.job_of_group(name)
        entry = self._entries.get((namespace, name))
        if entry is None and (match := _REPLICA.fullmatch(name)):
            entry = self._entries.get((namespace, match["job"]))
        return entry

    # ---- what was found out beside it

    def last(self, key: Key) -> Job | None:
        """A job as it was told of last."""
        entry = self._entries.get(key)
        return entry.job if entry is not None else None

    def answered(self, namespace: str, job: Job, last: Job | None) -> None:
        """A job as the cluster has it, asked when `last` was the last that was told.

        What was told meanwhile may be newer than the answer, also that it is gone; if not, more is to come.
        """
        if self.last((namespace, job.name)) is last:
            self.put(namespace, job)

    def lost(self, entry: Entry) -> None:
        """There certainly is no such job any more."""
        entry.gone, entry.unconfirmed, entry.undisturbed = entry.gone or self._now(), False, ()
        self._gone[entry.key] = None
        self._changed(entry)
        while len(self._gone) > _MOST_GONE:
            first = next(iter(self._gone))
            del self._gone[first]
            if (oldest := self._entries.get(first)) is not None and oldest.gone is not None:
                self._remove(oldest)

    def absent(self, key: Key, output_prefix: str) -> Entry:
        """A job that nobody here has seen, and that certainly is not there; its attempt writes there."""
        entry = self._entry(*key)
        entry.output_prefix = output_prefix
        self.lost(entry)
        return entry

    def left(self, entry: Entry, error_files: Sequence[ErrorFile], *, outputs: bool | None) -> None:
        """What a task has left in its store has been read; None: nobody could."""
        entry.error_files, entry.outputs = tuple(error_files), outputs
        entry.looking, entry.read = False, True
        self._changed(entry)

    def forget(self, entry: Entry) -> None:
        """Keep nothing of a job that is gone."""
        if self._entries.get(entry.key) is entry:
            self._remove(entry)
            self._gone.pop(entry.key, None)

    def _note(self, before: Job | Pod | None, record: Job | Pod) -> None:
        """How late a change is seen; a first list tells of what is long past."""
        if not self.ready.is_set():
            return
        at = told_at(record)
        if at is not None and (before is None or told_at(before) != at):
            self._lag(type(record).__name__, max(0.0, (self._now() - at).total_seconds()))

    def _changed(self, entry: Entry) -> None:
        entry.version += 1
        for listener in self._listeners:
            listener(entry)


def _is_same(job: Job | None, name: Name) -> bool:
    return job is not None and name.uid in (None, job.uid)


def _remembered(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The latest; of those before them what we have said last ourselves, which is not to be said again."""
    own = [each for each in events[: -_MOST_EVENTS + 1] if turns.is_own(each)]
    return (*own[-2:], *events[-_MOST_EVENTS + 1 :])


def _is_other(group: PodGroup, record: PodGroup) -> bool:
    return (group.api, group.kind, group.name) != (record.api, record.kind, record.name)
