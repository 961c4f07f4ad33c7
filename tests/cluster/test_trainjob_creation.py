"""A server is killed while it creates jobs, and another one with the other dialect continues."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rig import backend, operator, trainer
from rig.api import jobs
from rig.backend import Backend
from rig.caller import Caller, Shape
from rig.control_plane import ControlPlane, Options
from rig.process import wait_until

NAMESPACE = "killed"
DIALECTS = ("trainjob", "pytorchjob")
TRAINJOBS, RUNTIMES = (path.format(NAMESPACE) for path in (trainer.TRAINJOBS, trainer.RUNTIMES))
AT_ONCE = 20
SHAPE = Shape(workers=1)
LONGEST_DELAY = 0.25  # A create takes 10 to 100 ms, so most kills are between two of its requests.


@pytest.fixture(scope="module")
def plane(programs, tmp_path_factory):
    """An API server with the CRDs of both kinds of jobs, without controllers."""
    with ControlPlane(tmp_path_factory.mktemp("both"), Options(controllers=False)) as plane:
        plane.crds([*operator.crds(), *trainer.list_crds()])
        backend.permit(plane)
        plane.namespace(NAMESPACE)
        yield plane


@pytest.mark.parametrize("rounds", [3, pytest.param(25, marks=pytest.mark.soak)])
@pytest.mark.timeout(900)
def test_server_kill_neither_loses_nor_duplicates_a_job(plane, tmp_path, rounds):
    servers = []
    for dialect in DIALECTS:
        folder = tmp_path / dialect
        folder.mkdir()
        servers.append(Backend(plane, folder, settings={"kfpytorch": {"dialect": dialect}}))
    chosen = random.Random(rounds)
    attempts = []
    for number in range(rounds):
        first, second = servers[number % 2], servers[1 - number % 2]
        with first, Caller(first.endpoint, tmp_path, NAMESPACE, again=False) as caller:
            new = [caller.attempt() for _ in range(AT_ONCE)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                calls = [pool.submit(caller.try_to_create, each, SHAPE) for each in new]
                time.sleep(chosen.uniform(0, LONGEST_DELAY))
                first.process.kill()
                done = [each.result() for each in calls]
        with second, Caller(second.endpoint, tmp_path, NAMESPACE) as caller:
            for attempt, was_answered in zip(new, done, strict=True):
                before = attempt.job if was_answered else ""
                wait_until(lambda attempt=attempt: caller.try_to_create(attempt, SHAPE))
                assert before in ("", attempt.job)
        attempts += new
    executions = {each.execution for each in attempts}
    found = [each["metadata"] for path in (jobs(NAMESPACE), TRAINJOBS) for each in plane.admin.items(path)]
    names = [each["name"] for each in found if each["labels"]["execution-id"] in executions]
    assert sorted(names) == sorted(each.job for each in attempts)
    # A runtime whose job was created in the other dialect waits for the next scan.
    owners = {
        each["metadata"]["name"]: [owner["uid"] for owner in each["metadata"].get("ownerReferences", [])]
        for each in plane.admin.items(RUNTIMES)
    }
    there = {each["metadata"]["name"]: [each["metadata"]["uid"]] for each in plane.admin.items(TRAINJOBS)}
    assert there.keys() <= owners.keys()
    strange = {name: owner for name, owner in owners.items() if owner not in ([], there.get(name))}
    assert strange == {}
