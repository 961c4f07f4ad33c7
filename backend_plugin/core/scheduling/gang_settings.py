"""The gang settings of a platform: the section ``kfpytorch.gang``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.scheduling.adapter import (
    BACKEND,
    OPERATOR,
    QUEUE,
    SCHEDULER_NAME,
    TIMEOUT,
    SchedulerAdapter,
)
from backend_plugin.core.scheduling.registry import ADAPTERS, ADMISSION_SCHEDULER, IN_TREE, with_admission
from kfpytorch_common import labels

NONE: Final = "none"
AUTO: Final = "auto"
PATH: Final = "kfpytorch.gang"
LOCAL_QUEUE: Final = "local-queue"
PARTS: Final = ("by_namespace", "by_project", "allowed_schedulers")
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSettings:
    """The gang settings of a platform, or of one namespace, project or scheduler that has its own."""

    scheduler: str = NONE
    pod_groups_by: str = ""
    """``operator`` or ``backend``: the creator of the pod groups, if the scheduler supports both."""
    scheduler_name: str = ""
    """The `schedulerName` of pods; empty for the scheduler's default."""
    queue: str = ""
    """The queue of jobs whose author names none."""
    local_queue: str = ""
    """The queue that admits jobs before the scheduler places their pods, if the author names no
    other; empty if no queue admission is configured."""
    schedule_timeout: timedelta = timedelta(0)
    """The time for which placed pods wait for the others; zero for the scheduler's default."""
    by_namespace: "Mapping[str, GangSettings]" = field(default_factory=dict)
    """The settings that replace the general settings for jobs of a namespace, by namespace name."""
    by_project: "Mapping[str, GangSettings]" = field(default_factory=dict)
    """The settings by project and domain (``flytesnacks/production``); they override `by_namespace`."""
    allowed_schedulers: "Mapping[str, GangSettings]" = field(default_factory=dict)
    """The settings for jobs whose author names a scheduler, by the name of the scheduler."""

    @property
    def adapter(self) -> SchedulerAdapter | None:
        """The adapter for the scheduler, with queue admission if configured; None for `NONE` and `AUTO`."""
        places = self.adapters.get(self.pod_groups_by)
        return with_admission(places) if places is not None and self.local_queue else places

    @property
    def adapters(self) -> Mapping[str, SchedulerAdapter]:
        """The scheduler's adapters by the creator of pod groups: a value of `pod_groups_by`, or empty."""
        return ADAPTERS.get(self.scheduler, {})

    @property
    def scheduler_title(self) -> str:
        """The name of the scheduler for a message, with the creator of the pod groups if one is set."""
        return f"{self.scheduler} ({self.pod_groups_by})" if self.pod_groups_by else self.scheduler

    @property
    def title(self) -> str:
        """The start of a message on the selected scheduler: ``Gangs are for volcano``. A reason follows."""
        return f"Gangs are for {self.scheduler_title}"

    @property
    def parts(self) -> "Iterator[tuple[str, GangSettings]]":
        """Yield path and settings: the general ones, then those of each namespace, project and scheduler."""
        yield PATH, self
        for name in PARTS:
            for key, part in getattr(self, name).items():
                yield f"{PATH}.{name.replace('_', '-')}.{key}", part

    @property
    def is_queued(self) -> bool:
        """True if the settings put jobs into an admission queue, which decides when each job starts."""
        return self.scheduler == ADMISSION_SCHEDULER or bool(self.local_queue)

    @property
    def can_create_groups(self) -> bool:
        """True if this server may create pod groups, at least for some kinds of job.

        The server creates the pod group of a TrainJob even with the setting ``pod-groups-by: operator``,
        because Kubeflow Trainer creates none.
        """
        adapters = [each for _, part in self.parts for each in part.adapters.values()]
        return self.needs_detection or any(each.companion is not None for each in adapters)

    def without_operator_groups(self) -> "GangSettings":
        """Return these settings with `BACKEND` instead of `OPERATOR` as the creator of pod groups.

        The result applies to jobs whose operator creates no pod groups.
        """
        parts: dict[str, Any] = {
            name: {key: part.without_operator_groups() for key, part in getattr(self, name).items()}
            for name in PARTS
        }
        creator = BACKEND if self.pod_groups_by == OPERATOR else self.pod_groups_by
        return replace(self, pod_groups_by=creator, **parts)

    @property
    def needs_detection(self) -> bool:
        """True if the scheduler of a job may depend on the capabilities of the cluster."""
        return any(part.scheduler == AUTO for _, part in self.parts)

    @property
    def is_unconfigured(self) -> bool:
        """True if no job can have a gang scheduler, so that the cluster need not be examined."""
        return all(part.scheduler == NONE for _, part in self.parts)


def read(section: Mapping[str, Any]) -> GangSettings:
    """Return the settings from the section ``kfpytorch.gang``, whose keys have become field names.

    The section has nested sections for namespaces, projects and schedulers. If the section of a namespace or
    project names no scheduler, it inherits the fields that it does not set from the general settings. The
    section of a scheduler inherits nothing.
    """
    common = {key: value for key, value in section.items() if key not in PARTS}

    def build_part(own: Mapping[str, Any]) -> GangSettings:
        return GangSettings(**own) if "scheduler" in own else GangSettings(**{**common, **own})

    allowed_schedulers = {
        name: GangSettings(**{"scheduler": name, **each})
        for name, each in section.get("allowed_schedulers", {}).items()
    }
    parts: Any = {
        name: {str(key): build_part(each) for key, each in section.get(name, {}).items()}
        for name in ("by_namespace", "by_project")
    }
    return GangSettings(**common, **parts, allowed_schedulers=allowed_schedulers)


def check_settings(settings: GangSettings) -> Iterator[Problem]:
    """Yield a problem for each invalid value in the section ``kfpytorch.gang``."""
    for path, part in settings.parts:
        yield from _check_part(part, path)
    for key in settings.by_project:
        if key.count("/") != 1 or not all(key.split("/")):
            message = "is not a project with its domain"
            yield build_problem(f"{PATH}.by-project", key, message, "write PROJECT/DOMAIN")


# For the values of `scheduler` that name no scheduler: a part of a message, and the accepted options. A
# scheduler that `AUTO` detects may support these options.
_UNDETERMINED: Final = {
    AUTO: (f"by {AUTO}, which detects it", frozenset({QUEUE, TIMEOUT})),
    NONE: ("without a scheduler", frozenset[str]()),
}


def _check_part(settings: GangSettings, path: str) -> Iterator[Problem]:
    creator, field = settings.pod_groups_by, f"{path}.pod-groups-by"
    if settings.scheduler in _UNDETERMINED:
        whom, understood = _UNDETERMINED[settings.scheduler]
        yield from _check_supported(settings, understood, whom, path)
        if creator:
            yield build_problem(field, creator, f"is not supported {whom}", "name the scheduler")
        yield from _check_values(settings, path)
    elif not settings.adapters:
        known = ", ".join([AUTO, NONE, *sorted(ADAPTERS)])
        why = "is not a gang scheduler that this backend supports"
        why = IN_TREE_WHY if settings.scheduler == IN_TREE else why
        yield build_problem(f"{path}.scheduler", settings.scheduler, why, f"write one of {known}")
    elif creator not in settings.adapters:
        yield _build_pod_groups_problem(settings, field)
    else:
        adapter = settings.adapters[creator]
        yield from _check_supported(settings, adapter.understands, f"by {settings.scheduler}", path)
        yield from _check_values(settings, path)
        yield from _check_local_queue(settings, adapter, path)


IN_TREE_WHY: Final = (
    f"does not support {DEFAULT.name}s: since Kubernetes 1.36 a pod names its group in spec.schedulingGroup "
    f"(1.35: spec.workloadRef), and the CRD of {DEFAULT.name}s drops fields that are not in its schema"
)


def _build_pod_groups_problem(settings: GangSettings, field: str) -> Problem:
    message, remedy = f"is not supported by {settings.scheduler}", "leave it out"
    if "" not in settings.adapters:
        message = f"does not define what creates the groups of {settings.scheduler}"
        remedy = (
            "write operator if the training-operator runs with --gang-scheduler-name, and backend if it does"
            " not"
        )
    return build_problem(field, settings.pod_groups_by, message, remedy)


def _check_local_queue(settings: GangSettings, adapter: SchedulerAdapter, path: str) -> Iterator[Problem]:
    if not settings.local_queue:
        return
    where = f"{path}.{LOCAL_QUEUE}"
    if adapter.admits:
        message = f"is not supported by {settings.scheduler} alone"
        yield build_problem(where, settings.local_queue, message, "write queue")
    elif adapter.not_after_admission:
        message = f"is not supported by {settings.scheduler}: {adapter.not_after_admission}"
        yield build_problem(where, settings.local_queue, message, "leave it out, or use another scheduler")


def _check_supported(
    settings: GangSettings, understands: frozenset[str], whom: str, path: str
) -> Iterator[Problem]:
    values = {
        QUEUE: settings.queue,
        TIMEOUT: settings.schedule_timeout,
        SCHEDULER_NAME: settings.scheduler_name,
    }
    if settings.scheduler == NONE:
        values[LOCAL_QUEUE] = settings.local_queue
    for key, value in values.items():
        if value and key not in understands:
            yield build_problem(f"{path}.{key}", str(value), f"is not supported {whom}", "leave it out")


def _check_values(settings: GangSettings, path: str) -> Iterator[Problem]:
    for key, queue in ((QUEUE, settings.queue), (LOCAL_QUEUE, settings.local_queue)):
        if not labels.is_value(queue):
            yield build_problem(f"{path}.{key}", queue, "is not the name of a queue", f"write {labels.VALUE}")
    if settings.scheduler_name and not labels.is_subdomain(settings.scheduler_name):
        remedy = f"write {labels.SUBDOMAIN}"
        message = "is not the name of a scheduler"
        yield build_problem(f"{path}.{SCHEDULER_NAME}", settings.scheduler_name, message, remedy)
    if settings.schedule_timeout % _SECOND:
        message = "is not a whole number of seconds"
        yield build_problem(
            f"{path}.{TIMEOUT}", str(settings.schedule_timeout), message, "write 30s, 5m or 1h"
        )
