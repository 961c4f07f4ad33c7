"""User commands against `kfpytorch serve`, and the demo, with real processes."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from propeller import Propeller

from backend_plugin.cli.commands import kfpytorch
from e2e.propeller_flow import tasks
from e2e.propeller_flow.conftest import open_road
from e2e.propeller_flow.server_process import KFPYTORCH, TOKEN, has_text, wait_until

pytestmark = pytest.mark.timeout(120)

PATIENCE = 60.0
ROOT = Path(__file__).parents[3]
BOTH_START = re.compile(r"(?<=\n  INITIALIZING) +\S+-\d, \S+-\d starting, ContainerCreating: ")
STARTING = re.compile(r"(?<=\n  INITIALIZING).*?(?=\n  RUNNING)", re.DOTALL)


@pytest.fixture(scope="module")
def served(request, tmp_path_factory):
    settings = {"kfpytorch": {"dialect": request.param}}
    with open_road(tmp_path_factory.mktemp("people"), settings=settings) as road:
        yield road.served


@pytest.fixture
def execution(served, tmp_path):
    """Yield an execution with two replicas that have printed their line and still run."""
    wire = served.wire()
    execution = Propeller(wire, served.store).start(tasks.talks, folder=str(tmp_path))
    wait_until((tmp_path / "turn.1").exists)
    yield execution
    if not execution.has_ended:
        execution.abort()
        execution.wait(PATIENCE)
    wire.close()


def run(served, *arguments):
    environment = {"COLUMNS": None, "FORCE_COLOR": None, "KFPYTORCH_STATE_DIR": str(served.state)}
    return CliRunner().invoke(kfpytorch, arguments, env=environment)


def typed(served, *arguments):
    result = run(served, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def plainly():
    """Return the environment without the settings of the terminal that runs the tests."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}


def job(served, execution):
    return json.loads(typed(served, "describe", execution.node.execution, "-o", "json"))


@pytest.mark.parametrize(
    ("served", "roles"),
    [("pytorchjob", ("master-0", "worker-0")), ("trainjob", ("node-0", "node-1"))],
    indirect=["served"],
    ids=["PyTorchJob", "TrainJob"],
)
def test_job_is_listed_logged_and_cancelled_without_another_attempt(served, roles, execution):
    name = execution.node.execution
    following = subprocess.Popen(
        [KFPYTORCH, "logs", "--follow", name],
        env={**plainly(), "KFPYTORCH_STATE_DIR": str(served.state)},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: job(served, execution)["verdict"]["phase"] == "RUNNING")
    status = job(served, execution)
    replicas = [(f"{each['role']}-{each['index']}", each["phase"]) for each in status["replicas"]]
    assert replicas == [(role, "Running") for role in roles]
    assert [each["first_rank"] for each in status["replicas"]] == [0, 1]
    links = [Path(each["uri"].removeprefix("file://")) for each in status["verdict"]["logs"]]
    assert [link.is_dir() for link in links] == [True, True]
    assert re.search(rf"^{status['name']} +RUNNING +2/2 ", typed(served, "jobs"), re.MULTILINE)
    assert f"[{roles[1]}] rank 1 speaks\n" in typed(served, "logs", name, "--rank", "1")

    cancelled = typed(served, "cancel", name, "--reason", "wrong data")
    assert cancelled.startswith(f"{status['name']} is cancelled")
    outcome = execution.wait(PATIENCE)

    # The cancelled task has retries, but no other attempt follows.
    assert (outcome.phase, len(outcome.attempts), outcome.violations) == ("FAILED", 1, ())
    assert outcome.error.endswith("cancelled by a user, with `kfpytorch cancel`: wrong data")
    assert served.left(name) == []
    assert job(served, execution)["verdict"]["reason"] == "Cancelled"
    for rank in (0, 1):
        assert f"rank {rank} speaks\n" in typed(served, "logs", name, "--rank", str(rank))
    lines = following.communicate(timeout=PATIENCE)[0].splitlines()
    spoken = [line for line in lines if line.endswith(" speaks")]
    assert spoken == [f"[{role}] rank {rank} speaks" for rank, role in enumerate(roles)]
    assert following.returncode == 0


@pytest.mark.parametrize("served", ["pytorchjob"], indirect=True)
def test_nodes_fail_command_causes_a_retryable_node_lost_failure(served, execution):
    status = job(served, execution)
    places = {f"project-development/{each['pod']}": each["node"] for each in status["replicas"]}
    nodes = json.loads(typed(served, "nodes", "-o", "json"))
    assert {pod: node["name"] for node in nodes for pod in node["pods"]} == places
    lost = next(iter(places.values()))

    (node,) = json.loads(typed(served, "nodes", "fail", lost, "-o", "json"))
    assert (node["name"], node["state"]) == (lost, "not_ready")
    wait_until(lambda: len(execution.attempts) == 2)

    first = execution.attempts[0].shown[-1]
    assert (first.phase, "(node-lost)" in first.message) == ("RETRYABLE_FAILED", True), first
    (node,) = json.loads(typed(served, "nodes", "restore", lost, "-o", "json"))
    assert node["state"] == "ready"


@pytest.mark.parametrize("served", ["pytorchjob"], indirect=True)
def test_command_for_a_killed_server_reports_that_none_runs(served):
    served.kill()
    done = run(served, "jobs")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no server runs here" in done.stderr
    served.start()
    assert typed(served, "jobs", "--active") == ""
    assert TOKEN not in typed(served, "jobs", "-o", "json")


@pytest.mark.soak
@pytest.mark.torch
def test_readme_shows_the_output_of_the_demo(tmp_path):
    here = Path(KFPYTORCH).parent
    done = subprocess.run(
        ["make", "--no-print-directory", "demo", f"BIN={here}", "READY="],
        cwd=ROOT,
        env={**plainly(), "TMPDIR": str(tmp_path)},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert re.findall(r"^  ([A-Z_]+)\b", done.stdout, re.MULTILINE) == [
        *("QUEUED", "INITIALIZING", "RUNNING", "SUCCEEDED"),
        *("QUEUED", "INITIALIZING", "RUNNING", "FAILED"),
    ]
    output, shown = done.stdout, shown_on(ROOT / "README.md")
    assert len(BOTH_START.findall(shown)) == 2
    # Pods are created one at a time, and the watch may rarely show that only one of them starts.
    if len(BOTH_START.findall(output)) < 2:
        output, shown = STARTING.sub("", output), STARTING.sub("", shown)
    assert same_in_every_run(output) == same_in_every_run(shown)
    assert list(tmp_path.glob("kfpytorch-*")) == []


def shown_on(page):
    (block,) = re.findall(r"^```text\n\$ make demo\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return block


def same_in_every_run(text):
    """Return the words without parts that vary: hashes, times, paths, losses, ranks and ending workers."""
    for pattern, same in (
        (r"\S+/bin/", "BIN/"),
        (r"in \d+\.\d s, logs of all ranks in \S+", "in TIME, logs of all ranks in LOGS"),
        (r"=\d\.\d+", "=NUMBER"),
        (r"-[0-9a-f]{12}\b", "-HASH"),
        (r"\b\d+[sm]\b|\(\d+ s\)", "TIME"),
        (r"\S+/training\.py", "training.py"),
        (r"file://\S+", "LINK"),
        (r"\b(0\.0)\d+|\b\d\.\d{3}\b", "LOSS"),
        (r"worker-\d", "worker-N"),
        (r"(?<=FAILED) +[01]/2", " SOME/2"),
    ):
        text = re.sub(pattern, same, text)
    return text.split()


def test_interrupted_demo_ends_its_task_first(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    demo = subprocess.Popen(
        [KFPYTORCH, "demo", tasks.__file__, "talks", "--input", f"folder={tmp_path}"],
        env={**plainly(), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The caller of pytest may ignore SIGINT, as a shell does for background processes.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    try:
        wait_until((tmp_path / "turn.1").exists)
        demo.send_signal(signal.SIGINT)
        out, errors = demo.communicate(timeout=PATIENCE)
    finally:
        demo.terminate()  # If the test has failed.
    assert (demo.returncode, errors) == (128 + signal.SIGINT, ""), out
    assert [process for process in psutil.process_iter() if has_text(process, str(tmp_path))] == []
    assert list(temporary.glob("kfpytorch-demo-*")) == []
