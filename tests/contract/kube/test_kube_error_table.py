"""Tests each row of the table of API errors with calls of a cluster."""

import asyncio
import json

import pytest
from kube_server import Fault, served
from kube_world import NAME, job, opened, options

from backend_plugin.core.errors import RequestRejected
from backend_plugin.kube.api_errors import TABLE, parse_error_response
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable, Misconfigured, ObjectName

RBAC = 'pytorchjobs is forbidden: User "us" cannot create resource "pytorchjobs" in API group "kubeflow.org"'
RBAC_ROW = "403: a role or binding is missing"
DENIED = 'admission webhook "v.example.com" denied the request: User "a" cannot create resource "x"'
POLICY = (
    f'pytorchjobs.kubeflow.org "{NAME}" is forbidden: '
    "ValidatingAdmissionPolicy 'gpus' with binding 'all' denied request: exceeded quota of a team"
)
MODIFIED = "Operation cannot be fulfilled: the object has been modified; please apply your changes again"

UNAVAILABLE = (ClusterUnavailable, ClusterUnavailable, ClusterUnavailable)
MISSING = (Misconfigured, ClusterUnavailable, ClusterUnavailable)
PERMANENT = (RequestRejected, ClusterUnavailable, ClusterUnavailable)
NO_WEBHOOK = 'failed calling webhook "v.example.com": connection refused'
TERMINATING = "because it is being terminated"
PRECONDITION = "Precondition failed: UID in precondition"
# The results of create, get and delete, if the request is repeated, and responses: a code with the reason and
# the message of a `Status`, or with another body. In the order of the table.
ROWS = [
    ((AlreadyExists, ClusterUnavailable, None), False, [(409, "AlreadyExists", "exists")]),
    (UNAVAILABLE, True, [(409, "Conflict", MODIFIED)]),
    ((ClusterUnavailable, ClusterUnavailable, None), False, [(409, "Conflict", PRECONDITION)]),
    (PERMANENT, False, [(500, "", "etcdserver: request is too large"), (413, b"too large")]),
    (UNAVAILABLE, True, [(401, "Unauthorized", "who?")]),
    (
        UNAVAILABLE,
        True,
        [
            *((code, "Timeout", "") for code in (408, 504)),
            (429, "TooManyRequests", ""),
            (502, b"<html>Bad Gateway</html>"),
            (503, "ServiceUnavailable", ""),
            *((500, "InternalError", message) for message in ("", NO_WEBHOOK)),
        ],
    ),
    (MISSING, False, [(404, b"404 page not found\n")]),
    (UNAVAILABLE, False, [(code, b"<html>") for code in (302, 400, 403, 404, 422)]),
    (
        PERMANENT,
        False,
        [(code, "Forbidden", DENIED) for code in (403, 400)]
        + [(code, "Forbidden", POLICY) for code in (403, 422)],
    ),
    (PERMANENT, False, [(403, "Forbidden", "x is forbidden: exceeded quota: q")]),
    (MISSING, True, [(403, "Forbidden", RBAC)]),
    (MISSING, False, [(403, "Forbidden", TERMINATING), (403, "Forbidden", "cannot set blockOwnerDeletion")]),
    (
        (Misconfigured, None, None),
        False,
        [(404, "NotFound", f"{name} not found") for name in ('namespaces "ns"', f'pytorchjobs "{NAME}"')],
    ),
    (PERMANENT, False, [(400, "BadRequest", "unknown field"), (422, "Invalid", "spec: Invalid value")]),
    (UNAVAILABLE, False, [(code, "x", "y") for code in (405, 410, 415, 418)]),
]
CASES = {
    f"{response[0]} {response[-1][:30]!s}": (row.answer, expected, is_repeated, response)
    for row, (expected, is_repeated, responses) in zip(TABLE, ROWS, strict=True)
    for response in responses
}


@pytest.fixture(scope="module")
def server():
    with served() as server:
        yield server


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_response_is_handled_as_its_row_specifies(server, tmp_path, case):
    row, expected, is_repeated, (code, *content) = case
    body = content[0]
    if len(content) == 2:
        status = dict(zip(("reason", "message"), content, strict=True))
        body = json.dumps({"kind": "Status", "code": code, **status}).encode()
    assert parse_error_response(code, {}, body).error_class.answer == row
    name = ObjectName(namespace="ns", name=NAME)
    async with opened(options(server, tmp_path, request_timeout=1.0)) as cluster:
        calls = {"POST": cluster.create(job()), "GET": cluster.get(name), "DELETE": cluster.delete(name)}
        server.faults[:] = [Fault(verb, "pytorchjobs", times=1_000, code=code, body=body) for verb in calls]
        server.requests.clear()
        found = await asyncio.gather(*map(result, calls.values()))
    assert tuple(found) == expected
    for method in ("POST", "GET") if row == RBAC_ROW else calls:
        requests = sum(each.startswith(method) for each in server.requests)
        assert (requests > 1) is is_repeated


async def result(call):
    try:
        return await call
    except (AlreadyExists, RequestRejected, ClusterUnavailable) as error:
        return type(error)
