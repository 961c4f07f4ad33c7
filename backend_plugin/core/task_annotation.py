"""The annotation that stores the task and attempt of a job, so that any server can derive its phase."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from backend_plugin.core import names
from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.reading import intern_text

ANNOTATION: Final = "kfpytorch.flyte.org/task"


class _AnnotationJson(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The attempt of a job, as JSON in its annotation; unknown fields of later versions are ignored."""

    project: str = ""
    domain: str = ""
    execution: str = ""
    node_id: str = ""
    attempt: int = 0
    task_project: str = ""
    task_domain: str = ""
    task_name: str = ""
    task_version: str = ""
    task_config: dict[str, str] = msgspec.field(default_factory=dict)
    active_seconds: int | None = None
    queue_seconds: int | None = None
    pending_seconds: int | None = None


class TaskAnnotation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The attempt, deadlines and task config of a job, as read from its annotations."""

    run: Attempt
    deadlines: Deadlines
    task_config: Mapping[str, str]


def encode(run: Attempt, deadlines: Deadlines, task_config: Mapping[str, str]) -> str:
    """Return the value of a job's annotation that stores the arguments; equal arguments give equal text."""
    identity = {name: getattr(run, name) for name in _OF_RUN}
    timers = {name: getattr(deadlines, name) for name in _OF_DEADLINES}
    config = dict(sorted(task_config.items()))
    written = _AnnotationJson(attempt=run.attempt, **identity, **timers, task_config=config)
    return msgspec.json.encode(written).decode()


def encode_deadline(seconds: int) -> str:
    """Return the annotation of a job that runs no task. It contains only the active deadline, in seconds."""
    return msgspec.json.encode(_AnnotationJson(active_seconds=seconds)).decode()


def read(annotations: Mapping[str, str], namespace: str) -> TaskAnnotation | None:
    """Return the task's data in a job's annotations, as `encode` wrote it; None if missing or invalid."""
    try:
        decoded = _DECODER.decode(annotations.get(ANNOTATION, ""))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    identity: dict[str, Any] = {name: intern_text(getattr(decoded, name)) for name in _OF_RUN}
    return TaskAnnotation(
        run=Attempt(
            output_prefix=annotations.get(names.OUTPUT_PREFIX, ""),
            attempt=decoded.attempt,
            **identity,
            namespace=namespace,
            labels=_NONE,
            annotations=_NONE,
            environment=_NONE,
        ),
        deadlines=Deadlines(**{name: getattr(decoded, name) for name in _OF_DEADLINES}),
        task_config=decoded.task_config,
    )


_NONE: Final[Mapping[str, str]] = {}
_DECODER: Final = msgspec.json.Decoder(_AnnotationJson)
_OF_RUN: Final = (
    "project", "domain", "execution", "node_id", "task_project", "task_domain", "task_name", "task_version",
)  # fmt: skip
_OF_DEADLINES: Final = ("active_seconds", "queue_seconds", "pending_seconds")
