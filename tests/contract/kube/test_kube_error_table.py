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

    row: str
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


MISSING = (Misconfigured, ClusterUnavailable, ClusterUnavailable)
PERMANENT = (RequestRejected, ClusterUnavailable, ClusterUnavailable)
EXAMPLES = (
    Example(
        "409 `AlreadyExists`",
        409,
        "AlreadyExists",
        "exists",
        expected=(AlreadyExists, ClusterUnavailable, None),
    ),
    Example("409 `Conflict`: the object has been modified", 409, "Conflict", MODIFIED, requests=None),
    Example(
        "409 otherwise, as for the uid of another object",
        409,
        "Conflict",
        "Precondition failed: UID in precondition",
        expected=(ClusterUnavailable, ClusterUnavailable, None),
    ),
    Example(
        "413, or 500 with etcd's “request is too large”",
        500,
        "",
        "etcdserver: request is too large",
        expected=PERMANENT,
    ),
    Example("413, or 500 with etcd's “request is too large”", 413, body=b"too large", expected=PERMANENT),
    Example("401, also after the credentials were read again", 401, "Unauthorized", "who?", requests=None),
    *(
        Example(
            "408, 429, 500 and above, from Kubernetes or from a proxy", code, reason, body=body, requests=None
        )
        for code, reason, body in (
            (408, "Timeout", None),
            (429, "TooManyRequests", None),
            (500, "InternalError", None),
            (502, "", b"<html>Bad Gateway</html>"),
            (503, "ServiceUnavailable", None),
            (504, "Timeout", None),
        )
    ),
    Example(
        "408, 429, 500 and above, from Kubernetes or from a proxy",
        500,
        "InternalError",
        'failed calling webhook "v.example.com": connection refused',
        requests=None,
    ),
    Example(
        "404 `404 page not found`: the cluster does not serve this kind",
        404,
        body=b"404 page not found\n",
        expected=MISSING,
    ),
    *(
        Example("any other answer without a Kubernetes `Status`: a proxy, a login page", code, body=b"<html>")
        for code in (302, 400, 403, 404, 422)
    ),
    *(
        Example(
            "an admission webhook or policy denied the request, with 400 to 499",
            code,
            "Forbidden",
            message,
            expected=PERMANENT,
        )
        for code, message in ((403, DENIED), (400, DENIED), (403, POLICY), (422, POLICY))
    ),
    Example("403: exceeded quota", 403, "Forbidden", "x is forbidden: exceeded quota: q", expected=PERMANENT),
    Example(RBAC_ROW, 403, "Forbidden", RBAC, expected=MISSING, requests=None),
    *(
        Example(
            "403 otherwise, as in a namespace that is being deleted",
            403,
            "Forbidden",
            message,
            expected=MISSING,
        )
        for message in ("because it is being terminated", "cannot set blockOwnerDeletion")
    ),
    *(
        Example(
            "404 `NotFound`: the object, or its namespace, is not there",
            404,
            "NotFound",
            message,
            expected=(Misconfigured, None, None),
        )
        for message in ('namespaces "ns" not found', f'pytorchjobs "{NAME}" not found')
    ),
    Example("400, 422: the object is invalid", 400, "BadRequest", "unknown field", expected=PERMANENT),
    Example("400, 422: the object is invalid", 422, "Invalid", "spec: Invalid value", expected=PERMANENT),
    *(Example("any other", code, "x", "y") for code in (405, 410, 415, 418)),
)


@pytest.fixture(scope="module")
def server() -> Iterator[KubeServer]:
    with served() as server:
        yield server


def test_each_row_has_an_example() -> None:
    assert [*dict.fromkeys(each.row for each in EXAMPLES)] == [row.answer for row in TABLE]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.code} {each.message[:30]}")
async def test_response_is_handled_as_its_row_specifies(
    server: KubeServer, tmp_path: Any, example: Example
) -> None:
    name = ObjectName(namespace="ns", name=NAME)

    async with opened(options(server, tmp_path, patience=1.0)) as cluster:
        calls = {"POST": cluster.create(job()), "GET": cluster.get(name), "DELETE": cluster.delete(name)}
        answer = {"body": example.body} if example.body is not None else {"status": example.status}
        server.faults[:] = [
            Fault(method, "pytorchjobs", times=1_000, code=example.code, **answer) for method in calls
        ]
        server.asked.clear()
        found = await asyncio.gather(*map(result, calls.values()))
    assert tuple(found) == example.expected
    for method in ("POST", "GET") if example.row == RBAC_ROW else calls:
        requests = sum(each.startswith(method) for each in server.asked)
        assert requests == example.requests if example.requests else requests > 1


async def result(call: Awaitable[Any]) -> Any:
    """Return the result of a call, or the type of its error."""
    try:
        return await call
    except (AlreadyExists, RequestRejected, ClusterUnavailable) as error:
        return type(error)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.code} {each.message[:30]}")
def test_first_matching_row_applies(example: Example) -> None:
    body = example.body if example.body is not None else json.dumps(example.status).encode()
    answer = parse_error_response(example.code, {}, body)
    assert (answer.error_class.answer, answer.error_class.repeated) == (
        example.row,
        example.requests is None and example.row != RBAC_ROW,
    )
