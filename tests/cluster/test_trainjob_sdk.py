"""The TrainJobs of our server as the Kubeflow SDK returns them.

`get_job_logs` is not tested here, because simulated pods have no logs.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rig import kubeflow_sdk
from rig.api import pods
from rig.caller import Caller, Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import BY_HAND
from rig.process import wait_until
from rig.trainer import TrainerCluster

NAMESPACE = "trainjobs-sdk"
JOBS = 20
NODES = ("node-0", "node-1")


@pytest.fixture(scope="module")
def plane(trainer_cluster: TrainerCluster) -> ControlPlane:
    return trainer_cluster.plane


@contextmanager
def observing(plane: ControlPlane, folder: Path) -> Iterator[Iterator[str]]:
    """Run the program with the SDK, and yield the lines of its output."""
    command = [kubeflow_sdk.python(), kubeflow_sdk.PROGRAM, plane.kubeconfig(), NAMESPACE]
    log = folder / "sdk.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as program,
    ):
        assert program.stdout is not None
        try:
            yield program.stdout
        except StopIteration:
            pytest.fail(log.read_text())
        finally:
            program.kill()


def list_pods(plane: ControlPlane) -> list[dict[str, Any]]:
    return plane.admin.items(pods(NAMESPACE))


def set_phase(plane: ControlPlane, phase: str) -> None:
    """Set the phase of all pods, as the kubelet does."""
    for pod in list_pods(plane):
        plane.admin.patch(f"{pods(NAMESPACE, pod['metadata']['name'])}/status", {"status": {"phase": phase}})


def test_the_sdk_lists_reads_and_waits_for_our_jobs(
    plane: ControlPlane, caller: Caller, tmp_path: Path
) -> None:
    shape = Shape(workers=1, annotations={BY_HAND: "yes"})
    names = sorted(caller.create(shape=shape).job for _ in range(JOBS))
    wait_until(lambda: len(list_pods(plane)) == JOBS * len(NODES), 60, lambda: str(len(list_pods(plane))))
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
