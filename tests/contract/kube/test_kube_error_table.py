"""Tests each row of the table of API errors with calls of a cluster."""

import asyncio
import json
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kube_server import Fault, KubeServer, served
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


@dataclass(frozen=True)
class Example:
    """An API error and the expected results of create, get and delete: an error, or the value."""

    code: int
    reason: str = ""
    message: str = ""
    body: bytes | None = None
    expected: tuple[Any, Any, Any] = (ClusterUnavailable, ClusterUnavailable, ClusterUnavailable)
    requests: int | None = 1
    """The number of requests. None for more than one."""

    @property
    def status(self) -> dict[str, Any]:
        return {"kind": "Status", "code": self.code, "reason": self.reason, "message": self.message}


UNCHANGED = (ClusterUnavailable, ClusterUnavailable, None)
MISSING = (Misconfigured, ClusterUnavailable, ClusterUnavailable)
PERMANENT = (RequestRejected, ClusterUnavailable, ClusterUnavailable)
NO_WEBHOOK = 'failed calling webhook "v.example.com": connection refused'
ROWS = [  # In the order of the table.
    [Example(409, "AlreadyExists", "exists", expected=(AlreadyExists, ClusterUnavailable, None))],
    [Example(409, "Conflict", MODIFIED, requests=None)],
    [Example(409, "Conflict", "Precondition failed: UID in precondition", expected=UNCHANGED)],
    [
        Example(500, "", "etcdserver: request is too large", expected=PERMANENT),
        Example(413, body=b"too large", expected=PERMANENT),
    ],
    [Example(401, "Unauthorized", "who?", requests=None)],
    [
        *(Example(code, "Timeout", requests=None) for code in (408, 504)),
        Example(429, "TooManyRequests", requests=None),
        Example(502, body=b"<html>Bad Gateway</html>", requests=None),
        Example(503, "ServiceUnavailable", requests=None),
        *(Example(500, "InternalError", message, requests=None) for message in ("", NO_WEBHOOK)),
    ],
    [Example(404, body=b"404 page not found\n", expected=MISSING)],
    [Example(code, body=b"<html>") for code in (302, 400, 403, 404, 422)],
    [
        Example(code, "Forbidden", message, expected=PERMANENT)
        for code, message in ((403, DENIED), (400, DENIED), (403, POLICY), (422, POLICY))
    ],
    [Example(403, "Forbidden", "x is forbidden: exceeded quota: q", expected=PERMANENT)],
    [Example(403, "Forbidden", RBAC, expected=MISSING, requests=None)],
    [
        Example(403, "Forbidden", message, expected=MISSING)
        for message in ("because it is being terminated", "cannot set blockOwnerDeletion")
    ],
    [
        Example(404, "NotFound", message, expected=(Misconfigured, None, None))
        for message in ('namespaces "ns" not found', f'pytorchjobs "{NAME}" not found')
    ],
    [
        Example(400, "BadRequest", "unknown field", expected=PERMANENT),
        Example(422, "Invalid", "spec: Invalid value", expected=PERMANENT),
    ],
    [Example(code, "x", "y") for code in (405, 410, 415, 418)],
]
EXAMPLES = pytest.mark.parametrize(
    ("row", "example"),
    [
        pytest.param(row.answer, each, id=f"{each.code} {each.message[:30]}")
        for row, examples in zip(TABLE, ROWS, strict=True)
        for each in examples
    ],
)


@pytest.fixture(scope="module")
def server() -> Iterator[KubeServer]:
    with served() as server:
        yield server


@EXAMPLES
async def test_response_is_handled_as_its_row_specifies(server, tmp_path, row, example):
    body = example.body if example.body is not None else json.dumps(example.status).encode()
    assert parse_error_response(example.code, {}, body).error_class.answer == row
    name = ObjectName(namespace="ns", name=NAME)
    async with opened(options(server, tmp_path, patience=1.0)) as cluster:
        calls = {"POST": cluster.create(job()), "GET": cluster.get(name), "DELETE": cluster.delete(name)}
        server.faults[:] = [
            Fault(method, "pytorchjobs", times=1_000, code=example.code, body=body) for method in calls
        ]
        server.asked.clear()
        found = await asyncio.gather(*map(result, calls.values()))
    assert tuple(found) == example.expected
    for method in ("POST", "GET") if row == RBAC_ROW else calls:
        requests = sum(each.startswith(method) for each in server.asked)
        assert requests == example.requests if example.requests else requests > 1


async def result(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except (AlreadyExists, RequestRejected, ClusterUnavailable) as error:
        return type(error)
