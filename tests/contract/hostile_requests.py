"""Requests of an author who tries to occupy the server, each with about the requested number of bytes."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from flyteidl.admin import agent_pb2 as admin
from kubernetes_messages import varint
from serving import ASYNC, CONTAINER, build_creation

Request = tuple[str, bytes]  # The method and the message of a call.


def _many(size: int, each: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(index) for index in range(max(1, size // each))]


def _texts(size: int) -> dict[str, str]:
    return {f"k{index}": "v" for index in range(max(1, size // 14))}


def _custom(fields: Any) -> dict[str, Any]:
    return {"custom": {"workerReplicas": {"replicas": 1}, "masterReplicas": {"replicas": 1}, **fields}}


def _limits(entry: Any, size: int, each: int) -> dict[str, Any]:
    return _custom({"workerReplicas": {"replicas": 1, "resources": {"limits": [entry] * (size // each)}}})


def _role(key: str, value: Any) -> dict[str, Any]:
    return _custom({"kfpytorch": {"worker": {key: value}}})


def _container(**fields: Any) -> dict[str, Any]:
    return {"container": {**CONTAINER, **fields}}


def _pod(spec: Any = None, meta: Any = None, **container: Any) -> dict[str, Any]:
    main = {"name": "primary", "image": "image:1", **container}
    return {
        "container": None,
        "k8sPod": {"podSpec": {"containers": [main], **(spec or {})}, "metadata": meta or {}},
        "config": {"primary_container_name": "primary"},
    }


def _containers(size: int, **fields: Any) -> dict[str, Any]:
    main = {"name": "primary", "image": "image:1"}
    return _pod({"containers": [*_many(size, 40, lambda index: {"name": f"c{index}", **fields}), main]})


_TERM = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
_NODES = "requiredDuringSchedulingIgnoredDuringExecution"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/k"

TEMPLATES: dict[str, Callable[[int], dict[str, Any]]] = {
    "custom: a text": lambda size: _custom({"x": "y" * size}),
    "custom: numbers": lambda size: _custom({"x": [1] * (size // 12)}),
    "custom: keys": lambda size: _custom(_texts(size)),
    "custom: tolerations": lambda size: _role("tolerations", _many(size, 24, lambda _: {"key": 5})),
    "custom: selector": lambda size: _role("nodeSelector", _texts(size)),
    "custom: role containers": lambda size: _role(
        "podTemplate", {"spec": {"containers": _many(size, 30, lambda index: {"name": str(index)})}}
    ),
    "custom: resources": lambda size: _limits({"name": 9, "value": "x"}, size, 40),
    "custom: enums": lambda size: _limits({"name": "Q"}, size, 30),
    "args: one": lambda size: _container(args=["x" * size]),
    "args: many": lambda size: _container(args=["x"] * (size // 3)),
    "args: placeholders": lambda size: _container(args=["{{.input}}"] * (size // 12)),
    "args: beginnings": lambda size: _container(args=["{{ .inputs." * (size // 11)]),
    "env": lambda size: _container(env=_many(size, 14, lambda index: {"key": f"k{index}", "value": "v"})),
    "env: repeated": lambda size: _container(env=[{"key": "k", "value": "v"}] * (size // 8)),
    "resources": lambda size: _container(resources={"limits": [{"name": "CPU", "value": "x"}] * (size // 8)}),
    "pod: env": lambda size: _pod(env=_many(size, 44, lambda index: {"name": f"k{index}", "value": "v"})),
    "pod: wrong env": lambda size: _pod(env=_many(size, 40, lambda _: {"name": 5, "value": "v"})),
    "pod: containers": _containers,
    "pod: good containers": lambda size: _containers(size, image="i"),
    "pod: nameless": lambda size: _pod({"containers": _many(size, 30, lambda _: {"image": "i"})}),
    "pod: volumes": lambda size: _pod({"volumes": _many(size, 40, lambda _: {"name": "x", "emptyDir": {}})}),
    "pod: host paths": lambda size: _pod(
        {"volumes": _many(size, 55, lambda index: {"name": f"x{index}", "hostPath": {"path": "/"}})}
    ),
    "pod: ports": lambda size: _pod(ports=_many(size, 36, lambda index: {"containerPort": index + 1})),
    "pod: unknown fields": lambda size: _pod(_texts(size // 2)),
    "pod: affinity": lambda size: _pod(
        {"affinity": {"nodeAffinity": {_NODES: {"nodeSelectorTerms": [_TERM] * (size // 120)}}}}
    ),
    "pod: tolerations": lambda size: _pod({"tolerations": _many(size, 26, lambda at: {"key": f"k{at}"})}),
    "pod: mounts": lambda size: _pod(volumeMounts=[{"name": "x", "mountPath": "/x"}] * (size // 44)),
    "pod: resources": lambda size: _pod(resources={"limits": {f"a.b/{at}": "1" for at in _texts(size // 2)}}),
    "pod: labels": lambda size: _pod(meta={"labels": _texts(size)}),
    "pod: annotations": lambda size: _pod(
        meta={"annotations": {f"{_APP_ARMOR}{index}": "unconfined" for index in range(size // 80)}}
    ),
    "config": lambda size: {"config": _texts(size)},
}  # fmt: skip


def creations(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield CreateTask requests: every kind of template, and every part of the request around it."""
    for name, build in TEMPLATES.items():
        yield name, build_creation(**build(size)).SerializeToString()
    for part in ("labels", "annotations", "environment_variables"):
        request = build_creation()
        getattr(request.task_execution_metadata, part).update(_texts(size))
        yield f"metadata: {part}", request.SerializeToString()
    for part in ("namespace", "k8s_service_account"):
        request = build_creation()
        setattr(request.task_execution_metadata, part, "n" * size)
        yield f"metadata: {part}", request.SerializeToString()
    yield "output prefix", build_creation(output_prefix="s3://" + "/a" * (size // 2)).SerializeToString()
    request = build_creation()
    for index in range(size // 24):
        request.inputs.literals[f"k{index}"].scalar.primitive.integer = 1
        request.template.interface.inputs.variables[f"k{index}"].type.simple = 1
    yield "inputs", request.SerializeToString()


async def send(channel: grpc.aio.Channel, method: str, data: bytes) -> tuple[str, bytes]:
    """Return the status code of a call, and the response if there is one."""
    if method == "GetTaskLogs":
        stream = channel.unary_stream(ASYNC + method)(data, timeout=60)
        return (await stream.code()).name, b""
    call = channel.unary_unary(ASYNC + method)(data, timeout=60)
    code = await call.code()
    return code.name, await call if code is grpc.StatusCode.OK else b""


def all_kinds(size: int, meta: bytes) -> Iterator[Request]:
    for _, data in creations(size):
        yield "CreateTask", data
    yield from build_job_requests(size, meta)


def large(size: int) -> Iterator[Request]:
    """Yield a few requests that can be built in a short time at any size."""
    creation = build_creation()
    creation.task_execution_metadata.labels.update({f"k{index}": "v" for index in range(size // 16)})
    yield "CreateTask", creation.SerializeToString()
    yield "CreateTask", build_creation(**_container(args=["x" * size])).SerializeToString()
    creation = build_creation()
    creation.template.custom["x"] = [1] * (size // 11)
    yield "CreateTask", creation.SerializeToString()
    yield "GetTask", admin.GetTaskRequest(resource_meta=b"x" * size).SerializeToString()


def build_job_requests(size: int, meta: bytes) -> Iterator[Request]:
    """Yield requests for a job: with large references, queries and texts."""
    references = (meta, meta + b"x" * size, b"\x1a" + varint(size) + b"n" * size, b"\x08\x01" * (size // 2))
    for reference in references:
        yield "GetTask", admin.GetTaskRequest(resource_meta=reference).SerializeToString()
        yield "DeleteTask", admin.DeleteTaskRequest(resource_meta=reference).SerializeToString()
        yield "GetTaskLogs", admin.GetTaskLogsRequest(resource_meta=reference).SerializeToString()
    yield "GetTask", admin.GetTaskRequest(resource_meta=meta, output_prefix="x" * size).SerializeToString()
