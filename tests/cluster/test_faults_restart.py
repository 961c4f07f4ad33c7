"""Restarts of the API server and etcd, rotated credentials and clock skew: no task is affected."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from rig.api import jobs
from rig.backend import Backend
from rig.caller import Caller, Said, code_of
from rig.control_plane import BACKEND, ControlPlane
from rig.process import wait_until
from rig.proxy import Proxy

NAMESPACE = "faults-restart"
# Longer than the ten seconds for which the API server caches a token.
TOKEN_SECONDS = 40
COMPONENTS = ("api_server", "etcd")


@pytest.fixture(scope="module", autouse=True)
def namespace(bare: ControlPlane) -> None:
    bare.namespace(NAMESPACE)


@pytest.fixture
def caller(bare: ControlPlane, tmp_path: Path) -> Iterator[Caller]:
    with Backend(bare, tmp_path) as served, Caller(served.endpoint, tmp_path, NAMESPACE) as caller:
        yield caller


def wait_for_phase(caller: Caller, attempt: Any, phase: str) -> Said:
    """Wait for this phase, and return it with its message."""
    wait_until(lambda: caller.get(attempt).phase == phase, 60, lambda: str(caller.get(attempt)))
    return caller.get(attempt)


def finish_job(plane: ControlPlane, name: str, kind: str, at: str = "2026-01-01T00:00:00Z") -> None:
    """Write a condition, as the operator does."""
    condition = {"type": kind, "status": "True", "lastTransitionTime": at, "message": "played"}
    plane.admin.patch(jobs(NAMESPACE, name) + "/status", {"status": {"conditions": [condition]}})


@pytest.mark.parametrize("component", COMPONENTS)
def test_control_plane_restart_costs_no_attempt(bare: ControlPlane, caller: Caller, component: str) -> None:
    lives, ends, goes = caller.create(), caller.create(), caller.create()
    caller.succeeded(ends)
    process = getattr(bare, component)
    process.kill()
    phases = {caller.get(each).phase for each in (lives, ends, goes)}
    caller.delete(goes)  # The deletion is accepted now and performed when the cluster is back.
    late = caller.attempt()
    with pytest.raises(grpc.RpcError) as raised:
        caller.create(late)
    assert phases == {"QUEUED"}
    assert code_of(raised.value) in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    process.start()
    bare.wait()
    wait_until(lambda: _created(caller, late), 60, lambda: "a job cannot be created")
    finish_job(bare, ends.job, "Succeeded")
    wait_for_phase(caller, ends, "SUCCEEDED")
    wait_until(lambda: bare.admin.get(jobs(NAMESPACE, goes.job)) is None, 60, lambda: "it is not deleted")
    there = bare.admin.items(jobs(NAMESPACE))
    uids = {each["metadata"]["uid"] for each in there}
    assert {each.uid for each in (lives, ends, late)} <= uids
    assert caller.get(lives).phase == "QUEUED"


def _created(caller: Caller, attempt: Any) -> bool:
    try:
        caller.create(attempt)
    except grpc.RpcError as error:
        if code_of(error) in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            return False
        raise
    return True


def test_rotated_token_is_reloaded(bare: ControlPlane, tmp_path: Path) -> None:
    """A new token is written to the file, and the API server rejects the old one."""
    permit_account(bare)
    file = tmp_path / "token"
    file.write_text(token(bare, "one"))
    with (
        _Named(bare, tmp_path, file) as served,
        Caller(served.endpoint, tmp_path, NAMESPACE, again=False) as caller,
    ):
        first = caller.create()
        bare.admin.delete(secret("one"))
        wait_until(lambda: not _is_known(bare, file.read_text()), TOKEN_SECONDS, lambda: "it is still taken")
        with pytest.raises(grpc.RpcError) as raised:
            caller.create()
        assert "401 Unauthorized" in str(raised.value.details())
        assert caller.get(first).phase == "QUEUED"
        file.write_text(token(bare, "two"))
        wait_until(lambda: _created(caller, caller.attempt()), 30, served.process.tail)
        caller.succeeded(first)
        finish_job(bare, first.job, "Succeeded")
        wait_for_phase(caller, first, "SUCCEEDED")


class _Named(Backend):
    """A server that authenticates with the token in a file."""

    def __init__(self, plane: ControlPlane, folder: Path, file: Path) -> None:
        super().__init__(plane, folder)
        at = self.process.command.index("--kubeconfig") + 1
        config = yaml.safe_load(Path(self.process.command[at]).read_text())
        config["users"][0]["user"] = {"tokenFile": str(file)}
        named = folder / "named.kubeconfig"
        named.write_text(yaml.safe_dump(config))
        self.process.command[at] = str(named)


def secret(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"


def token(plane: ControlPlane, name: str) -> str:
    """Return a token of the service account that is valid while its Secret exists."""
    metadata = {"name": name, "namespace": NAMESPACE}
    bound = plane.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    to = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": bound["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{BACKEND}/token"
    answer = plane.admin.request("POST", path, {"spec": {"boundObjectRef": to}})
    assert answer.is_success, answer.text
    return str(answer.json()["status"]["token"])


def permit_account(plane: ControlPlane) -> None:
    """Give the service account the same rights as the user."""
    metadata = {"name": BACKEND, "namespace": NAMESPACE}
    plane.admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    group = "rbac.authorization.k8s.io"
    plane.admin.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{BACKEND}-account"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": BACKEND},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )


def _is_known(plane: ControlPlane, bearer: str) -> bool:
    answer = plane.admin.request("GET", "/version", headers={"Authorization": f"Bearer {bearer}"})
    return answer.status_code != 401


@pytest.mark.parametrize("minutes", [-10, 10])
def test_clock_skew_does_not_change_phases(bare: ControlPlane, tmp_path: Path, minutes: int) -> None:
    """Clock skew causes no early timeout and no delay of terminal phases, and outputs count."""
    with (
        Proxy(bare) as proxy,
        Backend(bare, tmp_path, server=proxy.url) as served,
        Caller(served.endpoint, tmp_path, NAMESPACE) as caller,
    ):
        proxy.skew = timedelta(minutes=minutes)
        lives, well, badly = caller.create(), caller.create(), caller.create()
        assert caller.get(lives).phase == "QUEUED"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        caller.succeeded(well)
        finish_job(bare, well.job, "Succeeded", now)
        finish_job(bare, badly.job, "Failed", now)
        wait_for_phase(caller, well, "SUCCEEDED")
        failed = wait_for_phase(caller, badly, "RETRYABLE_FAILED")
        assert "the pods that could show the reason no longer exist" in failed.message
        assert caller.get(lives).phase == "QUEUED"
