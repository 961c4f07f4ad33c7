"""The cache entry of a job: its observed state and the work on it. Also an index of jobs by Flyte node."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from backend_plugin.core.dialects import table
from backend_plugin.core.observed import Event, Job, Observed, Pod, PodGroup, is_replica
from backend_plugin.shell.cluster import ObjectName, build_job_name
from backend_plugin.shell.logging_setup import build_attempt_fields, build_job_fields
from backend_plugin.shell.queue_positions import QueuePositions

if TYPE_CHECKING:
    from datetime import datetime

    from backend_plugin.core.error_files import ErrorFile
    from backend_plugin.core.job import Attempt
    from backend_plugin.core.judging.job_events import JobEventReason
    from backend_plugin.core.judging.verdict import Phase
    from backend_plugin.core.task_annotation import TaskAnnotation
    from backend_plugin.shell.task_responses import CachedResponse

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""


class CachedJob:
    """The cache entry of one job: its observed state, and the state of this server's work on the job."""

    __slots__ = (
        "accompanied", "answer", "error_files", "events", "gone", "job", "last_event_reason",
        "logged_phase", "name", "namespace", "origin", "output_prefix", "outputs", "pod_groups", "pods",
        "queue", "queues", "read", "reading_outputs", "stopped", "unconfirmed", "undisturbed",
        "unmeasured", "version", "warned",
    )  # fmt: skip

    def __init__(self, namespace: str, name: str, queues: QueuePositions | None = None) -> None:
        self.namespace, self.name, self.queues = namespace, name, queues
        self.job: Job | None = None
        self.origin: TaskAnnotation | None = None
        self.output_prefix = self.queue = ""
        """The output prefix is from the job's annotation, or from a client's reference if the job does not
        exist. The queue is from the job's annotation about its gang (`core.scheduling.gang_annotation`)."""
        self.pods: tuple[Pod, ...] = ()
        self.events: tuple[Event, ...] = ()
        self.pod_groups: tuple[PodGroup, ...] = ()
        self.error_files: tuple[ErrorFile, ...] = ()
        self.outputs: bool | None = None
        """True if the task's outputs exist; None before they have been read, or if they cannot be read."""
        self.reading_outputs = self.read = self.unconfirmed = self.accompanied = self.warned = False
        """`reading_outputs`: the outputs are being read. `read`: the outputs have been read.
        `unconfirmed`: the last list of jobs does not contain the job, but the API server has not confirmed
        its deletion. `accompanied`: the companion objects of the job (such as its pod group) exist, but may
        not be in the cache yet. `warned`: the events for the job's warnings have been written."""
        self.logged_phase: Phase | None = None
        """The phase of the job that was logged last."""
        self.undisturbed: tuple[Pod, ...] = ()
        """The pods as they were when all replicas were last found running; empty if a check is needed."""
        self.stopped: frozenset[str] = frozenset()
        """The uids of the pods that this server has stopped, because a user has cancelled the job."""
        self.last_event_reason: JobEventReason | None = None
        """The last transition of the job between waiting and running; its event may not be written yet."""
        self.gone: datetime | None = None
        """The time at which the job was found not to exist."""
        self.answer: CachedResponse | None = None
        """The last response to a GetTask call for the job."""
        self.version = self.unmeasured = 0
        """`version`: a number that is incremented with every change of the entry. `unmeasured`: the number of
        durations (waiting time and start time) that are still to be measured; 0 if another server created the
        job."""

    @property
    def exists(self) -> bool:
        """True if the job was observed, and was not found to be gone."""
        return self.job is not None and self.gone is None

    @property
    def is_observed(self) -> bool:
        """True if the job was observed, or found to be gone."""
        return self.job is not None or self.gone is not None

    @property
    def has_objects(self) -> bool:
        """True if the cache has pods, events or pod groups of the job, even if it lacks the job itself."""
        return bool(self.pods or self.events or self.pod_groups)

    @property
    def is_untouched(self) -> bool:
        """True if the operator and the scheduler have not reacted to the job."""
        job = self.job
        return job is not None and not (job.conditions or job.deleting or self.has_objects)

    @property
    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines about the job."""
        if self.origin is not None:
            return build_attempt_fields(self.origin.run, self.name)
        return build_job_fields(self.namespace, self.name)

    @property
    def object_name(self) -> ObjectName:
        """The namespace, name and uid of the job; without the uid if the job was never observed."""
        if self.job is None:
            return ObjectName(namespace=self.namespace, name=self.name)
        return build_job_name(self.job)

    @property
    def key(self) -> Key:
        """The namespace and the name of the job, its key in the cache."""
        return self.namespace, self.name

    @property
    def replicas(self) -> tuple[Pod, ...]:
        """The pods that the job owns, without placeholder pods; all its pods if it was never observed."""
        job = self.job
        return self.pods if job is None else tuple(pod for pod in self.pods if is_replica(pod, job))

    def get_observed_state(self) -> Observed:
        """Return the objects and outputs of the job, as the input of `core.pipeline.judge`."""
        groups = self.pod_groups
        if self.queues is not None and any(group.queue for group in groups):
            groups = tuple(self.queues.with_position(group) for group in groups)
        observed = Observed(
            job=None if self.gone else self.job,
            # Once the job is gone, its uid is the only evidence of which pods belong to it.
            pods=self.replicas if self.gone else self.pods,
            events=self.events,
            pod_groups=groups,
            error_files=self.error_files,
            outputs=self.outputs,
            reading_outputs=self.reading_outputs,
        )
        return table.interpret(observed)


class AttemptIndex:
    """An index of the cached jobs by Flyte node; without the jobs for which the attempt is unknown."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, ...], dict[CachedJob, Attempt]] = {}

    def get_attempts(self, run: "Attempt") -> Mapping[CachedJob, "Attempt"]:
        """Return the cached jobs of the Flyte node of the attempt `run`, each with its own attempt."""
        return self._entries.get(run.flyte_node, {})

    def add(self, entry: CachedJob) -> None:
        """Add a cached job to the index; has no effect while the attempt of the job is unknown."""
        if entry.origin is not None:
            run = entry.origin.run
            self._entries.setdefault(run.flyte_node, {})[entry] = run

    def remove(self, entry: CachedJob) -> None:
        """Remove a job from the index; call this before its attempt changes or the job leaves the cache."""
        if entry.origin is None:
            return
        node = entry.origin.run.flyte_node
        of_node = self._entries.get(node, {})
        of_node.pop(entry, None)
        if not of_node:
            self._entries.pop(node, None)
