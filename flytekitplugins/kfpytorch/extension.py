"""What an author may say beyond upstream's fields, for our backend only; a stock Flyte passes over it.

How it is written is in `extension_wire`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from flytekit import PodTemplate

from flytekitplugins.kfpytorch import checks
from flytekitplugins.kfpytorch.base import Config
from flytekitplugins.kfpytorch.checks import Reader, optional
from flytekitplugins.kfpytorch.problems import Problem, Wrong, nearest, wrong
from kfpytorch_common import labels

_RUNTIME_KINDS: Final = ("ClusterTrainingRuntime", "TrainingRuntime")


@dataclass(kw_only=True)
class Gang(Config):
    """All replicas start together or none does, where the platform has a gang scheduler.

    What its scheduler cannot do is refused. Where there is none, ``scheduler``, if it is said, must be
    ``"none"``, the time-outs are kept, and nothing else has an effect. Read by our backend only; Flyte's
    own passes over it.

    Args:
        scheduler: Who sees to it: the platform's own, one of its choices, where it is ``auto`` one that the
            cluster has, or ``"none"``: the job is left to whoever schedules pods one by one. Default: the
            platform's.
        queue: The queue that the job waits in.
        min_member: How many replicas must find a place before any starts. Default: all of them; the
            fewest nodes of an `Elastic` task.
        priority_class_name: The priority of the gang: a PriorityClass, for Kueue a WorkloadPriorityClass.
        queue_timeout_seconds: How long the job may wait in its queue; not part of its run time.
        pending_timeout_seconds: How long its pods may wait for nodes, once the queue let it go.

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    scheduler: str | None = None
    queue: str | None = None
    min_member: int | None = None
    priority_class_name: str | None = None
    queue_timeout_seconds: int | None = None
    pending_timeout_seconds: int | None = None

    readers: ClassVar[Mapping[str, Reader]] = {
        "scheduler": optional(checks.text),
        "queue": optional(checks.text),
        "min_member": optional(checks.count(low=1)),
        "priority_class_name": optional(checks.priority_class),
        "queue_timeout_seconds": optional(checks.count(low=1)),
        "pending_timeout_seconds": optional(checks.count(low=1)),
    }


def find_wrong_members(gang: Gang | None, low: int, high: int) -> Iterator[Problem]:
    """Find a number of members that a job of `low` to `high` replicas cannot have."""
    if gang is None or gang.min_member is None:
        return
    if gang.min_member > high:
        remedy = f"is more than the {high} replicas of the task, so none would start; write at most {high}"
        yield Problem("gang.min_member", gang.min_member, remedy)
    elif gang.min_member < low:
        remedy = (
            f"is fewer than the {low} nodes with which training begins, so they would wait for others; "
            f"write at least {low}"
        )
        yield Problem("gang.min_member", gang.min_member, remedy)


@dataclass(kw_only=True)
class TrainJob(Config):
    """What only Kubeflow Trainer v2 knows.

    Nothing of it reaches a PyTorchJob, which is all that our backend writes so far.

    Args:
        runtime: The training runtime to start from. Default: the platform's.
        runtime_kind: ``"ClusterTrainingRuntime"`` or ``"TrainingRuntime"``.

    Raises:
        ConfigError: If a value cannot be meant (also when a task is defined, after changes).
    """

    runtime: str | None = None
    runtime_kind: str | None = None

    readers: ClassVar[Mapping[str, Reader]] = {
        "runtime": optional(checks.text),
        "runtime_kind": optional(checks.one_of(*_RUNTIME_KINDS)),
    }


def _node_selector(value: object) -> object:
    if not isinstance(value, Mapping):
        raise wrong(value, "must be a dict of labels such as {'gpu': 'h100'}")
    bad = [problem for key, item in value.items() for problem in _no_label(key, item)]
    if bad:
        raise Wrong(*bad)
    return value


def _no_label(key: object, value: object) -> Iterator[Problem]:
    if not (isinstance(key, str) and isinstance(value, str)):
        yield Problem(f"[{key!r}]", value, "a label and its value must be text")
        return
    if not labels.is_key(key):
        yield Problem(f"[{key!r}]", value, f"the name of a label is {labels.KEY}")
    if not labels.is_value(value):
        yield Problem(f"[{key!r}]", value, f"the value of a label is {labels.VALUE}")


def _tolerations(value: object) -> object:
    """A list of tolerations, as in a manifest or as kubernetes' models."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise wrong(value, "must be a list of tolerations such as {'key': 'gpu', 'operator': 'Exists'}")
    problems = [problem.within(f"[{place}]") for place, item in enumerate(value) for problem in _unread(item)]
    if problems:
        raise Wrong(*problems)
    return value


def _unread(toleration: object) -> Iterator[Problem]:
    said = checks.as_mapping(toleration)
    if said is None:
        yield Problem("", toleration, "must be a dict such as {'key': 'gpu', 'operator': 'Exists'}")
        return
    if {"tolerationSeconds", "toleration_seconds"} <= {*said}:
        yield Problem("", toleration, "says tolerationSeconds twice; leave one out")
    for key, item in said.items():
        reader = _TOLERATION.get("tolerationSeconds" if key == "toleration_seconds" else str(key))
        if reader is None:
            yield Problem(str(key), item, f"a toleration has no such key{nearest(key, [*_TOLERATION])}")
            continue
        try:
            reader(item)
        except Wrong as refusal:
            yield from (problem.within(str(key)) for problem in refusal.problems)


# As Kubernetes spells them; `toleration_seconds` is taken, too, as kubernetes' models write it.
_TOLERATION: Final[Mapping[str, Reader]] = {
    "key": optional(checks.string),
    "operator": optional(checks.one_of("Exists", "Equal")),
    "value": optional(checks.string),
    "effect": optional(checks.one_of("NoSchedule", "PreferNoSchedule", "NoExecute")),
    "tolerationSeconds": optional(checks.whole),
}


def _pod_template(value: object) -> object:
    if isinstance(value, PodTemplate):
        parts = {name: getattr(value, name) for name in ("labels", "annotations", "pod_spec")}
    elif isinstance(value, Mapping) and {*value} <= {"metadata", "spec"}:
        parts = dict(value)
    else:
        raise wrong(value, "must be a PodTemplate, or a dict with 'metadata' and 'spec' as in a manifest")
    problems = [*checks.unwritable(parts)]
    if problems:
        raise Wrong(*problems)
    return value


ROLE_READERS: Final[Mapping[str, Reader]] = {
    "node_selector": optional(_node_selector),
    "tolerations": optional(_tolerations),
    "pod_template": optional(_pod_template),
    "priority_class_name": optional(checks.priority_class),
}
