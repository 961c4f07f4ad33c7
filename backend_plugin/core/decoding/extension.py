"""Reads and checks the key `kfpytorch` of a task's `custom`: the options that flyteidl does not have."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import Message

from backend_plugin.core.decoding.train_job_checks import check_name, check_sources
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import GangOptions, Placement, ReplicaRole
from backend_plugin.core.package_installation import check_packages
from backend_plugin.core.protojson import build_problem, check_choice, decode_struct, parse_message
from backend_plugin.core.train_job_options import (
    DataSource,
    DataStorage,
    PodFailureRule,
    Topology,
    TrainJobOptions,
)
from backend_plugin.core.values import JsonValue
from kfpytorch_common import labels
from kfpytorch_common.data_sources import PATHS
from kfpytorch_common.frameworks import FRAMEWORKS, TORCH
from kfpytorch_idl.v1 import task_pb2

KEY: Final = "kfpytorch"
VERSION: Final = 1
_PATH: Final = f"custom.{KEY}"

_RUNTIME_KINDS: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOPOLOGY_MODES: Final = ("exclusive", "required", "preferred")
_POSITIVE: Final = ("min_member", "queue_timeout_seconds", "pending_timeout_seconds")


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the key ``kfpytorch`` in a task's `custom`; every field is optional."""

    roles: Mapping[ReplicaRole, tuple[Placement, int | None]] = msgspec.field(default_factory=dict)
    """The placement and `num_retries` of each role; `num_retries` is None if the author set no number."""
    gang: GangOptions = GangOptions()
    train_job: TrainJobOptions | None = None


_ROLES: Final = {"master": ReplicaRole.MASTER, "worker": ReplicaRole.WORKER}


def decode(value: JsonValue, problems: list[Problem]) -> Extension:
    """Read `value`, the entry ``kfpytorch`` of a task's `custom`; add the problems in it to `problems`."""
    if value is None:
        return Extension()
    if not isinstance(value, Mapping):
        remedy = "leave it out, or let the kfpytorch plugin write it"
        problems.append(build_problem(_PATH, value, "is not an object", remedy))
        return Extension()
    message = task_pb2.TaskExtension()
    parse_message(value, message, _PATH, problems)
    problems += _check_extension(message)
    parts = _read_set_fields(message)
    return Extension(
        roles={role: _decode_role(parts[name]) for name, role in _ROLES.items() if name in parts},
        gang=GangOptions(**_read_set_fields(message.gang)),
        train_job=_decode_train_job(message.train_job) if "train_job" in parts else None,
    )


def _decode_train_job(message: task_pb2.TrainJob) -> TrainJobOptions:
    parts = _read_set_fields(message)
    return TrainJobOptions(
        runtime=parts.get("runtime"),
        runtime_kind=parts.get("runtime_kind"),
        max_restarts=parts.get("max_restarts"),
        packages=tuple(message.packages),
        succeeded_indexes=message.success_policy.succeeded_indexes if "success_policy" in parts else None,
        topology=Topology(**_read_set_fields(message.topology)) if message.topology.level else None,
        pod_failure_rules=tuple(
            PodFailureRule(
                action=rule.action,
                exit_codes=tuple(sorted({*rule.exit_codes})),
                operator=rule.operator or "In",
                pod_conditions=dict(rule.pod_conditions),
            )
            for rule in message.pod_failure_policy
        ),
        sources=_decode_sources(parts),
        storage=DataStorage(**_read_set_fields(message.storage)),
        framework=message.framework or TORCH,
    )


def _decode_sources(parts: Mapping[str, Any]) -> dict[str, DataSource]:
    sources = {kind: parts[kind] for kind in PATHS if kind in parts}
    return {
        kind: DataSource(uri=source.uri, secret=source.secret or None, env=dict(source.env))
        for kind, source in sources.items()
    }


def _decode_role(role: task_pb2.Role) -> tuple[Placement, int | None]:
    parts = _read_set_fields(role)
    placement = Placement(
        node_selector=dict(role.node_selector),
        tolerations=tuple(
            {field.json_name: value for field, value in toleration.ListFields()}
            for toleration in role.tolerations
        ),
        pod_template=decode_struct(role.pod_template) if "pod_template" in parts else None,
        priority_class_name=parts.get("priority_class_name"),
    )
    return placement, parts.get("num_retries")


def _read_set_fields(message: Message) -> dict[str, Any]:
    return {item.name: value for item, value in message.ListFields()}


def _check_extension(message: task_pb2.TaskExtension) -> Iterator[Problem]:
    if message.HasField("version") and not 1 <= message.version <= VERSION:
        remedy = f"use a backend that supports it; this one supports {VERSION}"
        yield build_problem(f"{_PATH}.version", message.version, "is a layout of another release", remedy)
    for name, role in (("master", message.master), ("worker", message.worker)):
        for index, toleration in enumerate(role.tolerations):
            yield from _check_toleration(toleration, f"{_PATH}.{name}.tolerations[{index}]")
    yield from _check_gang(message.gang)
    yield from _check_train_job(message.train_job)
    yield from check_sources(message.train_job, f"{_PATH}.trainJob")


def _check_toleration(toleration: task_pb2.Toleration, path: str) -> Iterator[Problem]:
    # The later checks of the pod accept any text.
    if toleration.operator:
        yield from check_choice(toleration.operator, _OPERATORS, f"{path}.operator")
    if toleration.effect:
        yield from check_choice(toleration.effect, _EFFECTS, f"{path}.effect")


def _check_gang(gang: task_pb2.Gang) -> Iterator[Problem]:
    if gang.HasField("priority_class_name"):
        path = f"{_PATH}.gang.priorityClassName"
        yield from check_name(gang.priority_class_name, path, "a PriorityClass")
    for field, value in gang.ListFields():
        if field.name in _POSITIVE and value < 1:
            remedy = "write at least 1, or leave it out"
            yield build_problem(f"{_PATH}.gang.{field.json_name}", value, "is less than 1", remedy)


def _check_train_job(options: task_pb2.TrainJob) -> Iterator[Problem]:
    path, topology = f"{_PATH}.trainJob", options.topology
    if options.HasField("topology") and not labels.is_key(topology.level):
        remedy = f"write {labels.KEY}"
        yield build_problem(f"{path}.topology.level", topology.level, "is not a label name", remedy)
    if topology.HasField("mode"):
        yield from check_choice(topology.mode, _TOPOLOGY_MODES, f"{path}.topology.mode")
    yield from check_packages(options.packages, f"{path}.packages")
    if options.max_restarts < 0:
        yield build_problem(f"{path}.maxRestarts", options.max_restarts, "is negative", "write 0 or more")
    yield from _check_runtime(options, path)
    if options.HasField("framework"):
        yield from check_choice(options.framework, FRAMEWORKS, f"{path}.framework")


def _check_runtime(options: task_pb2.TrainJob, path: str) -> Iterator[Problem]:
    kind = options.runtime_kind
    if options.HasField("runtime"):
        yield from check_name(options.runtime, f"{path}.runtime", "a runtime")
    if kind:
        yield from check_choice(kind, _RUNTIME_KINDS, f"{path}.runtimeKind")
    if kind in _RUNTIME_KINDS and not options.runtime:
        message = "has no runtime of this kind"
        yield build_problem(f"{path}.runtimeKind", kind, message, "name the runtime, too")
