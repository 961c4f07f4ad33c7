"""``kfpytorch render --batch`` with valid and invalid JSON lines."""

import codecs
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import a_template
from google.protobuf.json_format import MessageToDict

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


def answers(*lines: bytes) -> list[dict[str, Any]]:
    done = subprocess.run(COMMAND, cwd=ROOT, input=b"\n".join(lines), capture_output=True, check=True)
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.splitlines()]


def answer(request: Any) -> Any:
    return json.loads(reply_to_line(render_requests.render_manifests, json.dumps(request).encode()))


def test_each_line_gets_a_response_line_with_its_id() -> None:
    good, bad = encode_json(REQUEST), encode_json({"id": 7, "template": {**TEMPLATE, "custom": {}}})
    replies = answers(good, b"", b"{torn", b"[]", bad, b'{"id": null}', good)
    assert [each["id"] for each in replies] == ["a", None, None, 7, None, "a"]
    assert [set(each) - {"id"} for each in replies] == [
        *({"manifests"}, {"problems"}, {"problems"}, {"problems"}, {"problems"}, {"manifests"}),
    ]
    assert [each["field"] for each in replies[3]["problems"]] == ["custom"]


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
    execution = {"project": "p", "domain": "d", "name": "f1"}
    node = {"node_id": "n0", "execution_id": execution}
    snake = {
        "task_execution_id": {"node_execution_id": node, "retry_attempt": 2},
        "namespace": "p-d",
        "labels": {"execution-id": "f1"},
        "k8s_service_account": "trainer",
    }
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


def test_each_response_is_written_before_the_next_request() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asked:
        assert asked.stdin is not None
        assert asked.stdout is not None
        for number in range(3):
            asked.stdin.write(encode_json({"id": number}) + b"\n")
            asked.stdin.flush()
            assert json.loads(asked.stdout.readline())["id"] == number
        asked.stdin.close()
        assert (asked.stdout.read(), asked.wait()) == (b"", 0)


def test_internal_error_is_reported_for_its_line_only() -> None:
    def defect(request: Any) -> Any:
        raise KeyError(request["id"])

    reply = json.loads(reply_to_line(defect, b'{"id": 1}'))
    assert (reply["id"], [each["value"] for each in reply["problems"]]) == (1, ['"KeyError: 1"'])
