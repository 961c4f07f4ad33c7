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
from hypothesis import given
from hypothesis import strategies as st

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


def problems(request: Any) -> list[str]:
    return [f"{each['field']}: {each['message']}" for each in answer(request)["problems"]]


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


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ([], [": is not an object"]),
        ({}, ["template: is not an object"]),
        ({"template": 3}, ["template: is not an object"]),
        ({**REQUEST, "metadata": []}, ["metadata: is not an object"]),
        ({**REQUEST, "output_prefix": 3}, ["output_prefix: is not text"]),
        ({**REQUEST, "settings": 3}, ["settings: is not an object"]),
        ({**REQUEST, "settings": {"default-lables": {}}}, ["settings.default-lables: is not a setting"]),
        ({**REQUEST, "pod_templates": {}}, ["pod_templates: is not a list"]),
        ({**REQUEST, "pod_templates": [1]}, ["pod_templates[0]: is not an object"]),
        (
            {**REQUEST, "template": {"taskTypeVersion": "x", "type": 3, "interface": {"inputs": 3}}},
            [
                "template.taskTypeVersion: is not a whole number of 32 bits",
                "template.type: is not text",
                "template.interface.inputs: is not an object",
            ],
        ),
        (
            {**REQUEST, "metadata": {"interruptible": 3, "labels": {"a": 1}}},
            [
                "metadata.interruptible: is neither true nor false",
                "metadata.labels: is not an object",
            ],
        ),
    ],
)
def test_invalid_request_is_explained(request_: Any, expected: list[str]) -> None:
    assert problems(request_) == expected


@given(st.binary(max_size=60))
def test_random_bytes_get_a_response_with_problems(line: bytes) -> None:
    assert set(json.loads(reply_to_line(render_requests.render_manifests, line))) == {"id", "problems"}


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

    assert json.loads(reply_to_line(defect, b'{"id": 1}')) == {
        "id": 1,
        "problems": [
            {
                "field": "",
                "value": '"KeyError: 1"',
                "message": "is an internal error of kfpytorch",
                "remedy": "report it with this line",
            }
        ],
    }
