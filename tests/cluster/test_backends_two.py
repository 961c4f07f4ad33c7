"""Several servers for one cluster: each can answer for any task, and each can be replaced at any time."""

import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import workflows
from rig import backend
from rig.api import jobs
from rig.backend import Backend
from rig.balancer import Balancer
from rig.caller import Caller, CallerAttempt
from rig.control_plane import HERE, ControlPlane, free_ports
from rig.fake_nodes import RUN
from rig.process import wait_until
from rig.propeller import NAMESPACE, PropellerOptions, RealPropeller

TASKS = 12
ATTEMPTS, AT_ONCE = 100, 16
FAILURES = 20


@pytest.fixture
def servers(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Backend]]:
    backend.permit(plane)
    one, two = (Backend(plane, tmp_path_factory.mktemp(f"server-{number}")) for number in (1, 2))
    with one, two:
        yield [one, two]


def test_server_replacement_costs_no_attempt(
    plane: ControlPlane, servers: list[Backend], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        Balancer([each.endpoint for each in servers]) as balancer,
        RealPropeller(
            plane, tmp_path_factory.mktemp("two"), PropellerOptions(connector=balancer.endpoint)
        ) as propeller,
    ):
        begun = []
        for number in range(TASKS):
            begun.append(propeller.start(workflows.says_nothing, annotations={RUN: f"{5 + number}s"}))
            if number % 4 == 1:
                # Restart the servers in turn with SIGTERM, as a Deployment does.
                server = servers[number // 4 % 2]
                server.process.stop()
                server.start()
        for execution in begun:
            propeller.wait_for_success(execution)
            assert propeller.attempts(execution) == 1
            found = plane.admin.items(jobs(NAMESPACE), labelSelector=f"execution-id={execution.name}")
            assert len(found) == 1


def test_concurrent_creates_on_two_servers_create_each_job_once(bare: ControlPlane, tmp_path: Path) -> None:
    namespace = "two-at-once"
    bare.namespace(namespace)

    def list_uids() -> dict[str, str]:
        found = bare.admin.items(jobs(namespace))
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        one, two = (_called(stack, bare, tmp_path, number, namespace) for number in (1, 2))
        executions = [f"f{number}" for number in range(ATTEMPTS)]
        first, second = ([caller.attempt(execution=each) for each in executions] for caller in (one, two))
        together = [threading.Barrier(2, timeout=60) for _ in executions]

        def create(caller: Caller, attempt: CallerAttempt, both: threading.Barrier) -> None:
            both.wait()
            caller.create(attempt)

        # The calls of a pair are submitted next to each other, so that both run at the same time.
        asked = [
            pool.submit(create, *each)
            for pair in zip(first, second, together, strict=True)
            for each in ((one, pair[0], pair[2]), (two, pair[1], pair[2]))
        ]
        for each in asked:
            each.result()
        made_by_one = {attempt.job: attempt.uid for attempt in first}
        assert len(made_by_one) == ATTEMPTS
        assert made_by_one == {attempt.job: attempt.uid for attempt in second} == list_uids()

        # Each server gets the job references of the other.
        crossed = [*((two, each) for each in first[::2]), *((one, each) for each in second[1::2])]
        for caller, attempt in crossed[::2]:
            _succeed(bare, namespace, caller, attempt)
        expected = ["SUCCEEDED", "QUEUED"] * (ATTEMPTS // 2)

        def fetch_phases() -> list[str]:
            return [*pool.map(lambda pair: pair[0].get(pair[1]).phase, crossed)]

        wait_until(lambda: fetch_phases() == expected, 60, lambda: str(fetch_phases()))
        for each in pool.map(lambda pair: pair[0].delete(pair[1]), crossed):
            assert each is None
        wait_until(lambda: not list_uids(), 60, lambda: f"left: {sorted(list_uids())}")


def test_two_servers_count_each_failure_once(bare: ControlPlane, tmp_path: Path) -> None:
    namespace = "two-count"
    bare.namespace(namespace)
    backend.permit(bare)
    ports = free_ports(2)
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            folder = tmp_path / f"server-{number}"
            folder.mkdir()
            known = {"KFPYTORCH_METRICS_HOST": HERE, "KFPYTORCH_METRICS_PORT": str(port)}
            # The metrics would contain the jobs that other tests left in this cluster.
            known |= {"KFPYTORCH_NAMESPACES": namespace}
            served = stack.enter_context(Backend(bare, folder, known=known))
        caller = stack.enter_context(Caller(served.endpoint, tmp_path / "store", namespace))
        attempts = [caller.attempt(execution=f"f{number}") for number in range(FAILURES)]
        for attempt in attempts:
            caller.create(attempt)
        condition = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": "played"}
        for attempt in attempts:
            status = {"status": {"conditions": [condition]}}
            bare.admin.patch(jobs(namespace, attempt.job) + "/status", status)
        stored = lambda: [_count_stored(port) for port in ports]  # noqa: E731
        wait_until(lambda: stored() == [FAILURES] * 2, 60, lambda: str(stored()))
        assert sum(sum(_metric(port, "job_failures_total").values()) for port in ports) == FAILURES


def _count_stored(port: int) -> float:
    """Return the number of failed jobs that a server has observed, if it has no verdict left to store."""
    failed = sum(count for labels, count in _metric(port, "jobs").items() if "FAILED" in labels)
    # Read after the jobs, because the storing of a verdict starts when its job is counted as failed.
    return 0 if any(_metric(port, "background_operations").values()) else failed


def _metric(port: int, name: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{HERE}:{port}/metrics", timeout=10) as page:
        text = page.read().decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"kfpytorch_{name}{{"))
    return {labels: float(value) for labels, _, value in lines}


def _called(stack: ExitStack, plane: ControlPlane, folder: Path, number: int, namespace: str) -> Caller:
    """Start another server, and return a client whose tasks write to the common store."""
    own = folder / f"server-{number}"
    own.mkdir()
    served = stack.enter_context(Backend(plane, own))
    return stack.enter_context(Caller(served.endpoint, folder / "store", namespace, again=False))


def _succeed(plane: ControlPlane, namespace: str, caller: Caller, attempt: CallerAttempt) -> None:
    """Write the outputs of a task and the condition Succeeded, as its pod and the operator do."""
    caller.succeeded(attempt)
    condition = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": "played"}
    plane.admin.patch(jobs(namespace, attempt.job) + "/status", {"status": {"conditions": [condition]}})
