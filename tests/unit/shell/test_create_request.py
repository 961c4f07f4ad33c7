"""Tests of the size limits for the parts of a CreateTask request."""

from typing import Any

import pytest
from flyteidl.admin import agent_pb2 as admin
from google.protobuf.message import DecodeError

from backend_plugin.shell import create_request


def a_request() -> admin.CreateTaskRequest:
    request = admin.CreateTaskRequest(output_prefix="s3://bucket/f1")
    request.template.type = "pytorch"
    request.template.task_type_version = 1
    request.template.custom["workers"] = 2
    request.template.config["a"] = "b"
    request.template.k8s_pod.metadata.labels["team"] = "a"
    request.template.k8s_pod.pod_spec["restartPolicy"] = "Never"
    request.task_execution_metadata.namespace = "p-d"
    return request


def test_request_is_parsed_without_its_unused_parts() -> None:
    request = a_request()
    template = request.template.SerializeToString(deterministic=True)
    request.inputs.literals["x"].scalar.primitive.integer = 1
    request.template.interface.inputs.variables["x"].type.simple = 1
    read = create_request.parse_request(request.SerializeToString())
    assert read.template.SerializeToString(deterministic=True) == template
    assert (read.run.namespace, read.run.output_prefix, read.problems) == ("p-d", "s3://bucket/f1", [])


@pytest.mark.parametrize(
    ("field", "limit", "part"),
    [
        ("custom", 256, lambda request: request.template.custom),
        ("config", 256, lambda request: request.template.config),
        ("k8sPod.metadata", 256, lambda request: request.template.k8s_pod.metadata.labels),
        ("k8sPod.podSpec", 1024, lambda request: request.template.k8s_pod.pod_spec),
        ("task_execution_metadata", 512, lambda request: request.task_execution_metadata.labels),
    ],
)
def test_oversized_part_is_a_problem_and_is_omitted(field: str, limit: int, part: Any) -> None:
    request = a_request()
    text = "x" * limit * 2**10
    part(request)["x"] = text
    read = create_request.parse_request(request.SerializeToString())
    (problem,) = read.problems
    message = f"is larger than the limit of {limit * 2**10:,} bytes"
    assert (problem.field, problem.message) == (field, message)
    assert text not in str(read.template) + str(read.run)


def test_message_with_too_many_fields_is_a_problem() -> None:
    request = a_request()
    for number in range(create_request.MAX_FIELDS):
        request.template.config[str(number)] = "x"
    (problem,) = create_request.parse_request(request.SerializeToString()).problems
    assert problem.field == "template"


@pytest.mark.parametrize(
    "data",
    [b"\x12", b"\x12\x05a", b"\x0b", b"\x80" * 20, b"\x08" + b"\xff" * 11, b"\x0d\x00", b"\x1a\x01\xff"],
)
def test_invalid_request_is_rejected(data: bytes) -> None:
    with pytest.raises(DecodeError):
        create_request.parse_request(data)


def test_unknown_fields_are_ignored() -> None:
    for data in (b"", b"\x28\x96\x01", b"\x29" + b"\0" * 8, b"\x2d" + b"\0" * 4):
        assert create_request.parse_request(data).problems == []
