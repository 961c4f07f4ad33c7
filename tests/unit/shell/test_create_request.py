"""Tests of the size limits of CreateTask requests, GetTaskLogs responses and tables by namespace."""

import asyncio
import logging
from typing import Any

import pytest
from builders import a_run
from flyteidl.admin import agent_pb2 as admin
from google.protobuf.message import DecodeError

from backend_plugin.core.observed import Pod
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.settings import PluginSettings
from backend_plugin.shell import create_request, task_responses
from backend_plugin.shell.capabilities_cache import MAX_NAMESPACES, CapabilitiesCache
from backend_plugin.shell.cluster import LogLine

INVALID = [b"\x12", b"\x12\x05a", b"\x0b", b"\x80" * 20, b"\x08" + b"\xff" * 11, b"\x0d\x00", b"\x1a\x01\xff"]
MIB = 2**20


def a_request():
    request = admin.CreateTaskRequest(output_prefix="s3://bucket/f1")
    request.template.type = "pytorch"
    request.template.task_type_version = 1
    request.template.custom["workers"] = 2
    request.template.config["a"] = "b"
    request.template.k8s_pod.metadata.labels["team"] = "a"
    request.template.k8s_pod.pod_spec["restartPolicy"] = "Never"
    request.task_execution_metadata.namespace = "p-d"
    return request


def test_request_is_parsed_without_its_unused_parts():
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
    assert (problem.field, problem.message) == (field, f"is larger than the limit of {limit * 2**10:,} bytes")
    assert text not in str(read.template) + str(read.run)


def test_message_with_too_many_fields_is_a_problem():
    request = a_request()
    for number in range(create_request.MAX_FIELDS):
        request.template.config[str(number)] = "x"
    (problem,) = create_request.parse_request(request.SerializeToString()).problems
    assert problem.field == "template"


def test_invalid_request_is_rejected_and_unknown_fields_are_ignored():
    for data in INVALID:
        with pytest.raises(DecodeError):
            create_request.parse_request(data)
    for data in (b"", b"\x28\x96\x01", b"\x29" + b"\0" * 8, b"\x2d" + b"\0" * 4):
        assert create_request.parse_request(data).problems == []


class Logs:
    """A cluster in which every pod has the same log line, repeated as often as requested."""

    def __init__(self, text):
        self.text = text
        self.read = []

    async def read_log(self, name, wanted):
        self.read.append(name.name)
        for _ in range(wanted.tail or 0):
            yield LogLine(time="", text=self.text)


def last_lines(logs, number, lines):
    pods = [Pod(name=f"j-worker-{at}", role="worker", index=at) for at in range(number)]

    async def read():
        return [batch async for batch in task_responses.read_last_lines(logs, "p-d", pods, lines)]

    return asyncio.run(read())


def test_logs_of_many_replicas_have_a_common_size_limit():
    logs = Logs("x" * 1_000)
    batches = last_lines(logs, 100, 10_000)
    assert sum(len(line) for batch in batches[:-1] for line in batch) <= 8 * MIB
    assert batches[-1] == [
        f"worker-{len(batches) - 1}: this log and those after it are not shown, because they are too long"
    ]
    # The logs of the remaining replicas are not read.
    assert len(logs.read) == len(batches)


def test_log_of_one_replica_and_each_line_have_a_size_limit():
    ((*lines,),) = last_lines(Logs("x" * MIB), 1, 100)
    assert {len(line) for line in lines} == {len("worker-0: ") + 64 * 2**10}
    assert MIB // 4 < sum(map(len, lines)) <= MIB // 2


class Looks:
    def __init__(self):
        self.namespaces = []

    async def fetch_capabilities(self, namespace, _):
        self.namespaces.append(namespace)
        return Capabilities()


async def test_capabilities_are_kept_for_the_latest_namespaces_only():
    source = Looks()
    found = CapabilitiesCache(source, PluginSettings(), ("kept",))
    for namespace in ("kept", *(f"n{number}" for number in range(MAX_NAMESPACES))):
        await found.get_capabilities(namespace)
    source.namespaces.clear()
    for namespace in ("kept", f"n{MAX_NAMESPACES - 1}", "n1", "n0"):
        await found.get_capabilities(namespace)
    assert source.namespaces == ["n0"]


def test_logged_reasons_are_kept_for_the_latest_namespaces_only(caplog):
    caplog.set_level(logging.INFO)
    found = CapabilitiesCache(None, PluginSettings())

    def count_records(number):
        caplog.clear()
        found.log_selection(a_run(namespace=f"n{number}"), ("because",))
        return len(caplog.records)

    assert (count_records(0), count_records(0)) == (1, 0)
    for number in range(1, MAX_NAMESPACES):
        count_records(number)
    assert [count_records(number) for number in (0, MAX_NAMESPACES) * 2] == [0, 1, 1, 0]
