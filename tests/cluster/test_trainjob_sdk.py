"""The TrainJobs of our server as the Kubeflow SDK returns them, and those of the SDK as our server does.

Logs are not tested here, because simulated pods have none.
"""

import json
import subprocess
from contextlib import contextmanager

import pytest
from rig import trainer
from rig.api import pods
from rig.caller import Shape
from rig.fake_nodes import BY_HAND
from rig.process import run_command, wait_for
from rig.tools import SOURCES, install_packages

from backend_plugin import client

PLANE = "with_trainer"
NAMESPACE = "trainjobs-sdk"
JOBS = 20
NODES = ("node-0", "node-1")
SDK_NAMESPACE = "trainjobs-of-sdk"
SHIPPED = {f"{each}-distributed" for each in ("deepspeed", "jax", "mlx", "torch", "xgboost")}


def run_program(name):
    """Return the command of a program with the SDK, which excludes the Kubernetes client of this project."""
    python = install_packages("kubeflow-sdk") / "bin/python"
    return [python, SOURCES / f"kubeflow-sdk/{name}.py"]


@contextmanager
def observing(plane, folder):
    """Run the program with the SDK, and yield the lines of its output."""
    command = [*run_program("observe"), plane.kubeconfig(), NAMESPACE]
    log = folder / "sdk.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as program,
    ):
        try:
            yield program.stdout
        except StopIteration:
            pytest.fail(log.read_text())
        finally:
            program.kill()


def list_pods(plane):
    return plane.admin.items(pods(NAMESPACE))


def set_phase(plane, phase):
    for pod in list_pods(plane):
        plane.admin.patch(f"{pods(NAMESPACE, pod['metadata']['name'])}/status", {"status": {"phase": phase}})


def test_sdk_lists_reads_and_waits_for_our_jobs(plane, caller, tmp_path):
    shape = Shape(workers=1, annotations={BY_HAND: "yes"})
    names = sorted(caller.create(shape=shape).job for _ in range(JOBS))
    wait_for(lambda: len(list_pods(plane)), lambda count: count == JOBS * len(NODES))
    set_phase(plane, "Running")
    with observing(plane, tmp_path) as lines:
        listed, read = json.loads(next(lines)), json.loads(next(lines))
        set_phase(plane, "Succeeded")
        ended = json.loads(next(lines))
    for shown, status, phase in (
        (listed, "Running", "Running"),
        (read, "Running", "Running"),
        (ended, "Complete", "Succeeded"),
    ):
        assert shown == {
            name: {
                "status": status,
                "nodes": len(NODES),
                "runtime": name,
                "steps": dict.fromkeys(NODES, phase),
            }
            for name in names
        }


@pytest.fixture(scope="module")
def trained(plane, served):
    """The job that the SDK has created from a shipped runtime, and the runtimes that it lists."""
    plane.namespace(SDK_NAMESPACE)
    for runtime in trainer.list_runtimes():
        plane.admin.apply(runtime)
    done = run_command(*run_program("train"), plane.kubeconfig(), SDK_NAMESPACE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sdk_job_is_listed_and_cannot_be_cancelled(plane, served, trained):
    name = trained["job"]
    assert name not in {each.name for each in client.list_jobs(server=str(served.state))}

    def find():
        listed = client.list_jobs(namespace=SDK_NAMESPACE, foreign=True, server=str(served.state))
        (job,) = (each for each in listed if each.name == name)
        return job

    job = wait_for(find, lambda job: job.verdict.phase == "RUNNING")
    assert (job.kind, job.foreign, job.total) == ("TrainJob", True, 2)
    with pytest.raises(client.RequestFailed, match="was not created by this connector"):
        client.cancel_job(name, server=str(served.state))
    (stored,) = plane.admin.items(trainer.TRAINJOBS.format(SDK_NAMESPACE))
    assert not stored["spec"].get("suspend")
    assert "deletionTimestamp" not in stored["metadata"]
    assert "annotations" not in stored["metadata"]


def test_server_lists_the_same_runtimes_as_the_sdk(served, trained):
    found = client.list_runtimes(namespace=SDK_NAMESPACE, server=str(served.state))
    assert {each.name for each in found} >= SHIPPED
    assert trained["runtimes"] == {one.name: [one.kind, one.framework, one.nodes, one.image] for one in found}
