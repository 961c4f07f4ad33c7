"""pyflyte-execute in the environment of the training operator, with two pods on this machine."""

import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from flyteidl.core import errors_pb2, literals_pb2
from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine

from e2e.conftest import MARK, PYFLYTE

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@dataclass
class Pod:
    """A pod of a job: its process, and its files in the store."""

    process: subprocess.Popen[str]
    output: Path

    def wait(self):
        out, _ = self.process.communicate(timeout=60)
        return out

    @property
    def files(self):
        return sorted(re.sub(r"-[0-9a-f]{32}", "", path.name) for path in self.output.glob("*"))

    @property
    def error(self):
        (path,) = self.output.glob("error*.pb")
        return errors_pb2.ErrorDocument.FromString(path.read_bytes()).error

    @property
    def value(self):
        outputs = literals_pb2.LiteralMap.FromString((self.output / "outputs.pb").read_bytes())
        return outputs.literals["o0"].scalar.primitive.integer


def environment(task, index, port):
    """Return the environment that the operator and Flyte set for pod `index` of two."""
    flyte = {
        "FLYTE_INTERNAL_EXECUTION_ID": "f123",
        "FLYTE_FAIL_ON_ERROR": "true",
        "_F_DES": "Earliest",
        "_F_WN": f"worker-{index}",
        "NODE_NAME": f"gpu-{index}",
    }
    if task == "elastic":
        return flyte | {
            "PET_RDZV_ENDPOINT": f"localhost:{port}",
            "PET_RDZV_BACKEND": "c10d",
            "PET_NNODES": "2:2",
            "PET_NPROC_PER_NODE": "2",
        }
    return flyte | {"GLOO_SOCKET_IFNAME": "lo"}


def start(pyflyte, task, what, pods=2):
    inputs = pyflyte.home / "inputs.pb"
    literals = TypeEngine.dict_to_literal_map(FlyteContextManager.current_context(), {"what": what})
    inputs.write_bytes(literals.to_flyte_idl().SerializeToString())
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    return [start_pod(pyflyte, task, index, port) for index in range(pods)]


def start_pod(pyflyte, task, index, port):
    home, output = pyflyte.home, pyflyte.home / f"output-{index}"
    command = [PYFLYTE.with_name("pyflyte-execute"), "--inputs", home / "inputs.pb"]
    command += ["--output-prefix", output, "--raw-output-data-prefix", home / "raw"]
    command += ["--checkpoint-path", home / "checkpoint", "--prev-checkpoint", ""]
    command += ["--resolver", "flytekit.core.python_auto_container.default_task_resolver"]
    process = subprocess.Popen(
        [*command, "--", "task-module", "in_pod", "task-name", task],
        env={**os.environ, **environment(task, index, port), MARK: pyflyte.mark},
        cwd=Path(__file__).parent / "scripts",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Pod(process, output)


def codes(pods):
    return [pod.process.returncode for pod in pods]


def test_outputs_are_written_by_the_pod_of_rank_0_only(pyflyte):
    pods = start(pyflyte, "elastic", "well")
    logs = [pod.wait() for pod in pods]
    assert (codes(pods), sorted(pod.files for pod in pods)) == ([0, 0], [[], ["outputs.pb"]])
    assert [pod.value for pod in pods if pod.files] == [7]
    assert sorted(re.findall(r"^\[r\d\] rank (\d) of 4", "".join(logs), re.MULTILINE)) == list("0123")


def test_error_file_contains_rank_replica_node_and_time(pyflyte):
    began = time.time()
    pods = start(pyflyte, "elastic", "error")
    for pod in pods:
        pod.wait()
    assert codes(pods) == [1, 1]
    errors = [pod.error for pod in pods]
    (cause,) = [error for error in errors if "three is out" in error.message]
    (consequence,) = [error for error in errors if error is not cause]
    index = cause.worker.removeprefix("worker-")
    assert re.search(rf"failed on rank 3 \(.*node gpu-{index}\)", cause.message)
    assert "ValueError: three is out\n" in cause.message
    assert re.search(r"at .*in_pod\.py:\d+ in elastic", cause.message)
    assert cause.kind == errors_pb2.ContainerError.NON_RECOVERABLE
    assert began < cause.timestamp.ToNanoseconds() / 1e9 < consequence.timestamp.ToNanoseconds() / 1e9


def test_stopped_pod_writes_no_outputs_and_no_error_file(pyflyte):
    pods = start(pyflyte, "elastic", "long")
    for pod in pods:
        while "rank" not in pod.process.stdout.readline():
            pass
    for pod in pods:
        pod.process.send_signal(signal.SIGTERM)
    logs = [pod.wait() for pod in pods]
    assert (codes(pods), [pod.files for pod in pods]) == ([143, 143], [[], []])
    assert all("stopped by SIGTERM" in log for log in logs)
    assert pyflyte.left()[0] == []


def test_rendezvous_timeout_error_contains_the_missing_nodes(pyflyte):
    (pod,) = start(pyflyte, "elastic", "well", pods=1)
    pod.wait()
    assert codes([pod]) == [1]
    assert "RendezvousFailed: 1 of 2 nodes joined at localhost:" in pod.error.message
    assert "missing 1 node(s)" in pod.error.message


def test_job_with_one_pod_needs_no_open_port(pyflyte):
    (pod,) = start(pyflyte, "alone", "well", pods=1)
    log = pod.wait()
    assert codes([pod]) == [0], log
    assert pod.value == 100
