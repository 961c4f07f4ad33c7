"""``kfpytorch render --batch`` with valid and invalid JSON lines."""

import codecs
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import a_template
from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from google.protobuf.json_format import MessageToDict, ParseDict

from backend_plugin.cli import render_requests
from backend_plugin.cli.json_lines import encode_json, reply_to_line

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-c", "from backend_plugin.cli import main; main()", "render", "--batch"]
TEMPLATE = MessageToDict(a_template({"workerReplicas": {"replicas": 1}}))
METADATA = {
    "taskExecutionId": {
        "nodeExecutionId": {"nodeId": "n0", "executionId": {"project": "p", "domain": "d", "name": "f1"}},
        "retryAttempt": 2,
    },
    "namespace": "p-d",
    "labels": {"execution-id": "f1"},
    "k8sServiceAccount": "trainer",
}
REQUEST = {"id": "a", "template": TEMPLATE, "metadata": METADATA, "output_prefix": "s3://b/f1/n0/data/2"}


def answer(request: Any) -> Any:
    return json.loads(reply_to_line(render_requests.render_manifests, json.dumps(request).encode()))


def test_each_line_gets_a_response_with_its_id_before_the_next_request() -> None:
    invalid = {"id": 7, "template": {**TEMPLATE, "custom": {}}}
    good = (REQUEST, "a", "manifests")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(COMMAND, cwd=ROOT, **streams) as asked:
        for request, id_, content in (good, (invalid, 7, "problems"), ([], None, "problems"), good):
            asked.stdin.write(b"\n" + encode_json(request) + b"\n")  # An empty line gets no response.
            asked.stdin.flush()
            reply = json.loads(asked.stdout.readline())
            assert (reply["id"], set(reply)) == (id_, {"id", content})
        assert (asked.communicate(), asked.returncode) == ((b"", b""), 0)


def test_request_may_contain_metadata_settings_and_pod_templates() -> None:
    (job,) = answer({**REQUEST, "settings": {"default-labels": {"a": "b"}}, "pod_templates": []})["manifests"]
    assert job["metadata"]["name"].startswith("f1-n0-2-")
    assert (job["metadata"]["namespace"], job["metadata"]["labels"]["a"]) == ("p-d", "b")
    spec = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert spec["serviceAccountName"] == "trainer"


NO_TYPES = {"taskTypeVersion": "x", "type": 3, "interface": {"inputs": 3}}


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        ([], [""]),
        ({}, ["template"]),
        ({"template": 3}, ["template"]),
        ({**REQUEST, "metadata": []}, ["metadata"]),
        ({**REQUEST, "output_prefix": 3}, ["output_prefix"]),
        ({**REQUEST, "settings": 3}, ["settings"]),
        ({**REQUEST, "settings": {"default-lables": {}}}, ["settings.default-lables"]),
        ({**REQUEST, "pod_templates": {}}, ["pod_templates"]),
        ({**REQUEST, "pod_templates": [1]}, ["pod_templates[0]"]),
        ({"template": {**TEMPLATE, "custom": {}}}, ["custom"]),
        (
            {**REQUEST, "template": NO_TYPES},
            ["template.taskTypeVersion", "template.type", "template.interface.inputs"],
        ),
        (
            {**REQUEST, "metadata": {"interruptible": 3, "labels": {"a": 1}}},
            ["metadata.interruptible", "metadata.labels"],
        ),
    ],
)
def test_invalid_request_is_reported_with_its_fields(request_: Any, fields: list[str]) -> None:
    assert [each["field"] for each in answer(request_)["problems"]] == fields


def test_optional_fields_may_be_null() -> None:
    keys = ("metadata", "output_prefix", "settings", "pod_templates")
    assert answer({**REQUEST, **dict.fromkeys(keys)}) == answer({"id": "a", "template": TEMPLATE})


def test_metadata_may_be_in_snake_case() -> None:
    message = ParseDict(METADATA, TaskExecutionMetadata())
    snake = MessageToDict(message, preserving_proto_field_name=True)
    assert set(snake) == {"task_execution_id", "namespace", "labels", "k8s_service_account"}
    assert answer({**REQUEST, "metadata": snake}) == answer(REQUEST)


@pytest.mark.parametrize("id_", [None, True, 1.5, 2**70, "", [1, {"a": None}], {}], ids=repr)
def test_id_is_returned_unchanged(id_: Any) -> None:
    assert answer({**REQUEST, "id": id_})["id"] == answer({"id": id_})["id"] == id_


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 7, "template": {"custom": NaN}}',
        b'{"id": "\\ud800"}',
        b"[7]",
        b"NaN",
        b"{torn",
        b'{"id": 1e999}',
        b'{"id": "\xff"}',
        b'{"id": ' + b"[" * 100_000,
    ],
)
def test_response_to_invalid_json_has_no_id(line: bytes) -> None:
    reply = json.loads(reply_to_line(render_requests.render_manifests, line))
    assert (reply["id"], [each["field"] for each in reply["problems"]]) == (None, [""])


def test_line_with_bom_and_crlf_is_read() -> None:
    line = codecs.BOM_UTF8 + json.dumps(REQUEST).encode() + b"\r\n"
    assert json.loads(reply_to_line(render_requests.render_manifests, line)) == answer(REQUEST)


def test_internal_error_is_reported_for_its_line_only() -> None:
    def defect(request: Any) -> Any:
        raise KeyError(request["id"])

    reply = json.loads(reply_to_line(defect, b'{"id": 1}'))
    assert (reply["id"], [each["value"] for each in reply["problems"]]) == (1, ['"KeyError: 1"'])
