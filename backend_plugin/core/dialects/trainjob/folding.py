"""The nodes of a TrainJob, which are all equal: the master, which is the first node, and the workers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from backend_plugin.core.dialects.trainjob.resource import find_trainer
from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.job import ReplicaRole, TrainingJob
from backend_plugin.core.protojson import format_value
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest

_MAPS: Final = ("labels", "annotations")
_ABSENT: Final[Any] = None


def fold(job: TrainingJob, pods: Sequence[Manifest]) -> tuple[TrainingJob, Sequence[Manifest]]:
    """Return the job with one group of nodes, the master at index 0, and the pod template of the nodes.

    Raises:
        InvalidTask: If the pod templates of master and workers differ. The error lists each field that
            differs, with both values.
    """
    first, *others = job.groups
    problems = [
        problem
        for group, pod in zip(others, pods[1:], strict=True)
        if pod != pods[0]
        for problem in _compare(pods[0], pod, first.role, group.role)
    ]
    if problems:
        raise InvalidTask(*problems)
    restarts = {group.restart_policy for group in job.groups} - {"Never"}
    nodes = structs.replace(
        first,
        role=ReplicaRole.NODE,
        replicas=sum(group.replicas for group in job.groups),
        restart_policy="OnFailure" if restarts else "Never",
        num_retries=max(
            (each.num_retries for each in job.groups if each.num_retries is not None), default=None
        ),
    )
    return structs.replace(job, groups=(nodes,)), pods[:1]


def _compare(one: Manifest, other: Manifest, role: ReplicaRole, other_role: ReplicaRole) -> Iterator[Problem]:
    """Yield the fields in which the pod templates of two roles differ."""
    values, others = _list_fields(one), _list_fields(other)
    for field in dict.fromkeys([*values, *others]):
        value, there = values.get(field, _ABSENT), others.get(field, _ABSENT)
        if value != there:
            yield Problem(
                field=f"{role.value.lower()} and {other_role.value.lower()}: {field}",
                value=f"{format_value(value)} and {format_value(there)}",
                message="differ, and all nodes of a TrainJob are equal",
                remedy="use PyTorchJob, or make them equal",
            )


def _list_fields(pod: Manifest) -> Mapping[str, JsonValue]:
    """Return the fields of a pod template by name; those of the training container under their own names."""
    spec, metadata = get_mapping(pod, "spec"), get_mapping(pod, "metadata")
    trainer = find_trainer(spec)
    others = [each for each in get_mappings(spec, "containers") if each is not trainer]
    return {
        **_list_container_fields(trainer),
        **{key: value for key, value in spec.items() if key != "containers"},
        **{
            f"{get_text(each, 'name')}.{key}": value
            for each in others
            for key, value in _list_container_fields(each).items()
        },
        **{f"metadata.{key}": value for key, value in metadata.items() if key not in _MAPS},
        **{
            f"metadata.{part}.{key}": value
            for part in _MAPS
            for key, value in get_mapping(metadata, part).items()
        },
    }


def _list_container_fields(container: Manifest) -> Mapping[str, JsonValue]:
    """Return the fields of a container, and each of its variables as a field."""
    return {
        **{key: value for key, value in container.items() if key not in ("name", "env")},
        **{
            f"env.{get_text(each, 'name')}": each.get("value", each.get("valueFrom"))
            for each in get_mappings(container, "env")
        },
    }
