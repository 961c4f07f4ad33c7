"""Classification of error responses of the API server."""

import json

import pytest
from kubernetes_messages import wrapped

from backend_plugin.kube import api_errors
from backend_plugin.kube.api_resources import PODS
from backend_plugin.kube.permissions import Permissions, PolicyRule


def answered(code, body=b"", **headers):
    return api_errors.parse_error_response(
        code, {key.replace("_", "-"): value for key, value in headers.items()}, body
    )


def status(**fields):
    return json.dumps({"kind": "Status", **fields}).encode()


def test_retry_delay_is_read_from_header_or_status():
    body = status(details={"retryAfterSeconds": 3})
    assert answered(429, body).retry_after == 3
    assert answered(429, body, Retry_After="7").retry_after == 7
    assert answered(503, b"", Retry_After="Thu, 01 Jan 2026 00:00:00 GMT").retry_after == 0


def test_protobuf_status_equals_json_status():
    causes = [{"reason": "r", "field": "metadata.uid", "message": "m"}]
    details = {"name": "n", "kind": "pods", "retryAfterSeconds": 3, "causes": causes}
    fields = {"reason": "Invalid", "message": "no: Grüße", "code": 422, "details": details}
    for answer in answered(422, status(**fields)), answered(422, wrapped("Status", fields)):
        assert (answer.code, answer.reason, answer.message) == (422, "Invalid", "no: Grüße")
        assert (answer.fields, answer.retry_after, answer.genuine) == ({"metadata.uid"}, 3, True)
    gone = answered(404, wrapped("Status", {"reason": "NotFound", "details": {"kind": "pods", "name": "n"}}))
    assert gone.is_missing_object("pods", "n")


@pytest.mark.parametrize("body", [wrapped("Pod", {}), wrapped("Status", {"code": 1})[:-1]])
def test_protobuf_that_is_no_status_is_not_genuine(body):
    assert not answered(404, body).genuine
    answer = api_errors.decode_event_error(body)
    assert (answer.code, answer.reason, answer.genuine) == (500, "Unknown", False)


def test_proxy_error_page_is_shortened():
    answer = answered(502, b"<html>" + b"x" * 100_000)
    assert (answer.reason, len(answer.message), answer.genuine) == ("BadGateway", 2_000, False)
    assert answered(599).reason == "Unknown"


def test_json_of_a_proxy_may_contain_bytes_that_are_not_utf8():
    answer = answered(502, b'{"message": "d\xe9sol\xe9"}')
    assert (answer.reason, answer.message) == ("BadGateway", '{"message": "d\ufffdsol\ufffd"}')


@pytest.mark.parametrize("line", [b'{"type": "ERROR"}', b'{"type": "ERROR", "object": {"code": "x"}}'])
def test_watch_error_may_have_any_shape(line):
    answer = api_errors.decode_event_error(line)
    assert (answer.code, answer.reason) == (500, "Unknown")


def test_missing_permission_is_logged_again_after_it_was_granted(caplog):
    caplog.set_level("INFO")
    permissions, rule = Permissions(()), PolicyRule(resource=PODS, verbs=("list",))
    for _ in range(2):
        permissions.record_missing(rule, "refused")
        permissions.record_granted(rule)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2
