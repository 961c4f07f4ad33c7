"""Faults between the server and the API server: each attempt gets one job, and Flyte gets no wrong phase."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from rig.api import jobs
from rig.backend import SIGNING, Backend
from rig.caller import Caller, CallerAttempt, code_of
from rig.control_plane import ControlPlane
from rig.process import wait_until
from rig.proxy import How, ProxiedRequest, Proxy, ProxyFault, status

from backend_plugin.core import job_ref

NAMESPACE = "faults-http"
PAGE = ProxyFault(code=503, headers={"Content-Type": "text/html"}, body=b"<h1>upstream connect error</h1>")
ONCE = {
    "429": status(429, "TooManyRequests", Retry_After="1"),
    "500": status(500, "InternalError"),
    "503 of a proxy": PAGE,
    "504": status(504, "Timeout"),
    "401": status(401, "Unauthorized"),
    "403 of one that begins": status(403, "Forbidden", 'User "backend" cannot create resource "pytorchjobs"'),
    "a conflict over a quota": status(
        409, "Conflict", "Operation cannot be fulfilled: the object has been modified"
    ),
    **{how.name: ProxyFault(how=how) for how in How if how not in (How.ANSWER, How.STALL)},
}
FOR_LONG = {
    "500": (status(500, "InternalError", "etcdserver: no leader"), "etcdserver: no leader"),
    "503 of a proxy": (PAGE, "503 ServiceUnavailable: <h1>upstream connect error</h1>"),
    "429": (status(429, "TooManyRequests", "too many", Retry_After="20"), "429 TooManyRequests: too many"),
    "401": (status(401, "Unauthorized", "no such token"), "401 Unauthorized: no such token"),
    "no connection": (ProxyFault(how=How.RESET_BEFORE), "the API server cannot be reached"),
    "no answer": (ProxyFault(how=How.HANG), "the API server did not answer within 6 s"),
}


@pytest.fixture(scope="module")
def proxy(bare: ControlPlane) -> Iterator[Proxy]:
    bare.namespace(NAMESPACE)
    with Proxy(bare) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def served(bare: ControlPlane, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with Backend(bare, tmp_path_factory.mktemp("backend"), server=proxy.url) as served:
        yield served


@pytest.fixture
def caller(served: Backend, proxy: Proxy, tmp_path: Path) -> Iterator[Caller]:
    with Caller(served.endpoint, tmp_path, NAMESPACE, again=False) as caller:
        yield caller
        proxy.forget()


def writes(method: str) -> Callable[[ProxiedRequest], bool]:
    return lambda asked: asked.method == method and "/pytorchjobs" in asked.path


def only_job(bare: ControlPlane, attempt: CallerAttempt) -> str:
    """Return the uid of the only job of an execution."""
    (job,) = bare.admin.items(jobs(NAMESPACE), labelSelector=f"execution-id={attempt.execution}")
    return str(job["metadata"]["uid"])


@pytest.mark.parametrize("trouble", ONCE)
def test_a_create_gets_over_a_bad_moment(
    bare: ControlPlane, proxy: Proxy, caller: Caller, trouble: str
) -> None:
    """The call succeeds with the existing job, without a retry of propeller."""
    proxy.befall(ONCE[trouble], writes("POST"))
    attempt = caller.create()
    assert proxy.all_befell
    assert attempt.uid == only_job(bare, attempt)
    assert caller.get(attempt).phase == "QUEUED"


@pytest.mark.parametrize("trouble", FOR_LONG)
def test_a_create_that_cannot_be_is_asked_again_and_says_why(
    bare: ControlPlane, proxy: Proxy, caller: Caller, trouble: str
) -> None:
    fault, why = FOR_LONG[trouble]
    proxy.choose = lambda asked: fault if writes("POST")(asked) else None
    attempt = caller.attempt()
    with pytest.raises(grpc.RpcError) as raised:
        caller.create(attempt)
    said = str(raised.value.details())
    assert code_of(raised.value) == "UNAVAILABLE"
    assert said.startswith("the job could not be created: ")
    assert why in said
    assert said.endswith("; retry")
    proxy.forget()
    caller.create(attempt)
    assert attempt.uid == only_job(bare, attempt)


@pytest.mark.parametrize("trouble", ONCE)
def test_a_deletion_gets_over_a_bad_moment(
    bare: ControlPlane, proxy: Proxy, caller: Caller, trouble: str
) -> None:
    attempt = caller.create()
    proxy.befall(ONCE[trouble], writes("DELETE"))
    caller.delete(attempt)
    wait_until(lambda: bare.admin.get(jobs(NAMESPACE, attempt.job)) is None, 30, lambda: "it is not deleted")
    assert proxy.all_befell


def test_of_a_cluster_that_is_away_what_was_known_is_told(
    bare: ControlPlane, proxy: Proxy, caller: Caller
) -> None:
    """GetTask returns no error while the API server is away, because propeller fails a task after six."""
    ended, lives = caller.create(), caller.create()
    finished = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    caller.succeeded(ended)
    bare.admin.patch(jobs(NAMESPACE, ended.job) + "/status", {"status": {"conditions": [finished]}})
    wait_until(lambda: caller.get(ended).phase == "SUCCEEDED", 30, lambda: str(caller.get(ended)))
    proxy.choose = lambda _: ProxyFault(how=How.RESET_BEFORE)
    proxy.cut()
    for _ in range(20):
        assert caller.get(ended).phase == "SUCCEEDED"
        assert caller.get(lives).phase == "QUEUED"
        assert caller.get(_unknown(caller, lives)).phase == "QUEUED"


def _unknown(caller: Caller, like: CallerAttempt) -> CallerAttempt:
    """Return a task that another server has created."""
    other = caller.attempt()
    ref = job_ref.decode(like.meta)
    name = ref.name.replace(like.execution, other.execution)
    other.meta = job_ref.encode(replace(ref, name=name, output_prefix=other.prefix), SIGNING)
    return other
