"""The output and exit codes of `kfpytorch jobs, logs, cancel, nodes`, and the keys of their JSON output."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from scripted_cluster import format_time
from served_jobs import EXITED, NAMESPACE, FewNodes, a_job, a_pod, serving_jobs
from server_process import KFPYTORCH

from backend_plugin import client
from backend_plugin.cli import command_errors, inspect_commands, tables
from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core import printable
from backend_plugin.core.errors import Problem
from backend_plugin.core.observed import Event, Job
from backend_plugin.core.runtimes import Runtime
from backend_plugin.shell import job_encoding, server_file
from kfpytorch_idl.v1 import job_service_pb2 as wire


@pytest.fixture
def served(monkeypatch, tmp_path):
    monkeypatch.setenv(server_file.STATE, str(tmp_path))
    with serving_jobs(nodes=FewNodes("node-0", "node-1")) as served:
        served.apply(
            a_job("f1-n0-0-aaa", "Running", made=0),
            a_pod("f1-n0-0-aaa", "master-0"),
            a_pod("f1-n0-0-aaa", "worker-0", restartCount=2),
            a_job("f2-n0-0-bbb", "Running", "Failed", made=60),
            a_pod("f2-n0-0-bbb", "worker-0", EXITED, phase="Failed", node="node-1"),
        )
        for number, replica in enumerate(("master-0", "worker-0")):
            served.cluster.write(f"f1-n0-0-aaa-{replica}", number, f"hello from {replica}")
        served.cluster.runtimes.append(Runtime(name="torch", kind="ClusterTrainingRuntime"))
        served.cluster.foreign.append(Job(name="other", namespace="ns", dialect="TrainJob"))
        monkeypatch.setenv(client.SERVER, served.endpoint)
        yield served


def typed(*arguments):
    return CliRunner().invoke(kfpytorch, arguments)


def printed(*arguments):
    """Return the output of a successful command, with ages replaced because they change."""
    result = typed(*arguments)
    assert result.exit_code == 0, result.output
    return re.sub(r"\b\d+[smhd]\b", "AGE", result.stdout)


def records(*arguments, code=0, text=""):
    result = CliRunner().invoke(kfpytorch, [*arguments, "-o", "json"], input=text)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_jobs_are_listed_newest_first(served):
    assert re.sub(" +", " ", printed("jobs")) == (
        "NAME PHASE READY AGE MESSAGE\n"
        "f2-n0-0-bbb FAILED 0/2 AGE worker-0 failed: exit code 1 (user-error)\n"
        "f1-n0-0-aaa RUNNING 2/2 AGE 2 of 2 replicas ready\n"
    )
    assert records("jobs") == [records("describe", "f2"), records("describe", "f1")]
    assert [len(job["replicas"]) for job in records("jobs")] == [1, 2]
    assert [each["name"] for each in records("jobs", "--active", "-n", NAMESPACE)] == ["f1-n0-0-aaa"]
    result = typed("jobs", "-n", "elsewhere")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "there are no jobs\n")
    assert records("jobs", "-n", "elsewhere") == []


def test_describe_shows_replicas_events_and_the_message_for_flyte(served):
    event = {"type": "Warning", "reason": "BackOff", "message": "again", "lastTimestamp": format_time(3)}
    named = {"kind": "Event", "metadata": {"name": "e", "namespace": NAMESPACE}}
    served.apply({**named, **event, "involvedObject": {"kind": "Pod", "name": "f2-n0-0-bbb-worker-0"}})
    whole = printed("describe", "f2")
    assert whole.startswith(
        "project-development/f2-n0-0-bbb\n"
        "  flows.train, node n0 of execution f2 (project, development), attempt 0\n"
    )
    assert "\nFAILED (ExitCode, user-error)\n  worker-0 failed: exit code 1" in whole
    assert "\n  Flyte does not try again\n" in whole
    (row,) = [line.split() for line in whole.splitlines() if line.startswith("worker-0")]
    assert (row[:6], row[8]) == (["worker-0", "1", "Failed", "node-1", "0", "1"], "Error")
    (worker,) = records("describe", "f2")["replicas"]
    assert (worker["started"], worker["ended"]) == ("2026-01-01T00:00:05Z", "2026-01-01T00:00:50Z")
    assert re.search(r"\nevents\n  \d\d:\d\d:\d\d  BackOff  worker-0: again\n$", whole)


def test_describe_watch_ends_with_the_job_and_its_exit_code(served):
    watching = command("describe", "f1", "--watch", "-o", "json", served=served)
    first = json.loads(watching.stdout.readline())
    served.succeed("f1-n0-0-aaa")
    rest = [json.loads(line) for line in watching.communicate()[0].splitlines()]
    assert (first["change"], first["verdict"]["phase"]) == ("job", "RUNNING")
    assert (rest[-1]["verdict"]["phase"], watching.returncode) == ("SUCCEEDED", 0)
    failed = typed("describe", "f2", "--watch")
    assert (failed.exit_code, failed.stdout.count("FAILED")) == (1, 1)


def test_jobs_watch_ends_quietly_on_ctrl_c(served):
    watching = command("jobs", "--watch", served=served)
    lines = [watching.stdout.readline().split()[0] for _ in range(3)]
    served.do(lambda: served.cluster.remove("PyTorchJob", NAMESPACE, "f2-n0-0-bbb"))
    gone = watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    assert lines == ["NAME", "f1-n0-0-aaa", "f2-n0-0-bbb"]
    assert (gone.split()[0], gone.rstrip().endswith("is gone")) == ("f2-n0-0-bbb", True)
    assert (watching.communicate(), watching.returncode) == (("", ""), 130)


def test_wait_returns_when_the_job_has_succeeded(served):
    waiting = command("wait", "f1", "--timeout", "60s", served=served)
    served.wait_for_stream()
    served.succeed("f1-n0-0-aaa")
    assert (waiting.communicate(), waiting.returncode) == (("f1-n0-0-aaa has ended: SUCCEEDED\n", ""), 0)


def test_wait_exits_with_4_after_the_timeout(served):
    result = typed("wait", "f1", "--timeout", "2500ms")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == "Error: f1-n0-0-aaa has not ended within 2.5 s; its phase is RUNNING\n"


def test_deletion_of_the_job_ends_the_wait_with_an_error(served):
    waiting = command("wait", "f1", served=served)
    served.wait_for_stream()
    served.apply(a_job("f1-n0-0-aaa", metadata={"uid": "another"}))
    output, errors = waiting.communicate()
    assert (waiting.returncode, output, "deleted" in errors) == (1, "", True), errors


def test_log_lines_have_their_replica_as_prefix(served):
    assert printed("logs", "f1") == ("[master-0] hello from master-0\n[worker-0] hello from worker-0\n")
    assert printed("logs", "f1", "--rank", "1", "--timestamps") == (
        "[worker-0] 2026-01-01T00:00:01.000Z hello from worker-0\n"
    )
    assert printed("logs", "f1", "--node", "1") == "[worker-0] hello from worker-0\n"
    assert records("logs", "f1", "--replica", "master-0")["text"] == "hello from master-0"


def test_terminal_control_sequences_are_removed_from_log_lines(served):
    served.cluster.written.clear()
    served.cluster.write("f1-n0-0-aaa-worker-0", 1, "\x1b[31mred\x1b[0m\tand \x1b]0;title\x07wide\x9b2J\x00")
    served.cluster.write("f1-n0-0-aaa-worker-0", 2, " 10%\r 50%\r100%")
    assert printed("logs", "f1") == "[worker-0] red\tand wide2J\n[worker-0] 100%\n"


def test_closed_output_pipe_ends_the_logs_command_quietly(served):
    for number in range(20_000):
        served.cluster.write("f1-n0-0-aaa-worker-0", number / 100, "x" * 100)
    shell = ["bash", "-c", f"{KFPYTORCH} logs f1 | head -n 2; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, env=environment(served), capture_output=True, text=True, check=True)
    assert (len(done.stdout.splitlines()), done.stdout.splitlines()[2], done.stderr) == (3, "141", "")


def test_lost_server_during_logs_follow_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv(server_file.STATE, str(tmp_path))
    with serving_jobs() as served:
        served.apply(a_job("f1-n0-0-a", "Running"), a_pod("f1-n0-0-a", "worker-0"))
        served.cluster.write("f1-n0-0-a-worker-0", 1, "first")
        following = command("logs", "-f", "f1", served=served)
        assert following.stdout.readline() == "[worker-0] first\n"
    output = following.communicate()[1]
    assert (following.returncode, output.startswith("Error: the server at 127.0.0.1:")) == (1, True), output
    assert len(output.splitlines()) == 1


def test_cancel_prints_the_result(served):
    done = printed("cancel", "f1", "--reason", "no use")
    assert done == "f1-n0-0-aaa is cancelled: FAILED; it was RUNNING\n"
    assert printed("cancel", "f2") == "f2-n0-0-bbb has ended already: FAILED\n"
    assert records("describe", "f1")["verdict"]["message"].endswith("`kfpytorch cancel`: no use")
    assert records("cancel", "f2")["already_finished"] is True


def test_nodes_are_listed_and_changed(served):
    drained = re.sub(" +", " ", printed("nodes", "drain", "node-1"))
    assert drained == "NAME STATE CPU MEMORY GPU PODS\nnode-1 drained 2 4Gi - -\n"
    assert [each["state"] for each in records("nodes")] == ["ready", "drained"]
    states = [records("nodes", change, "node-1")[0]["state"] for change in ("fail", "restore")]
    assert states == ["not_ready", "ready"]
    assert "f1-n0-0-aaa-master-0, f1-n0-0-aaa-worker-0" in printed("nodes")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nodes", "fail"], 2, "no node is given; run: kfpytorch nodes fail NAME"),
        (["nodes", "loose", "node-1"], 2, "'loose' is not one of"),
        (["nodes", "fail", "node-9"], 1, 'nodes "node-9" not found'),
        (["logs", "f1", "--node", "2"], 1, "job f1-n0-0-aaa has no node 2; it has nodes 0 to 1"),
        (["wait", "f9"], 1, "there is no job f9"),
        (["jobs", "--all", "--watch"], 2, "--all"),
        (["wait", "f1", "--timeout", "0"], 2, "Invalid value for '--timeout'"),
        (["wait", "f1", "--timeout", "soon"], 2, "'soon' is not a duration"),
    ],
)
def test_invalid_arguments_are_reported(served, arguments, code, message):
    result = typed(*arguments)
    assert (result.exit_code, message in " ".join(result.stderr.split())) == (code, True), result.output


def test_missing_server_error_contains_the_start_command(monkeypatch, tmp_path):
    monkeypatch.setenv(server_file.STATE, str(tmp_path))
    monkeypatch.delenv(client.SERVER, raising=False)
    task = tmp_path / "some_task.py"
    task.write_text("from flytekit import task\n@task\ndef train(): ...\n")
    absent, errors = str(tmp_path / "absent"), []
    for arguments in (
        *(["jobs"], ["jobs", "-w"], ["wait", "f"], ["logs", "f"], ["cancel", "f"], ["nodes"]),
        *(["submit", str(task), "--server", "127.0.0.1:1"], ["jobs", "--server", absent]),
        ["jobs", "--server", "grpcs://127.0.0.1:1"],
    ):
        result = typed(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "start one: kfpytorch serve --cluster embedded" in result.stderr
        errors.append(result.stderr)
    assert "no server answers at grpcs://127.0.0.1:1; " in errors[-1]
    assert f"{absent}/server.json" in errors[-2]


def environment(served):
    return {**os.environ, client.SERVER: served.endpoint, "PYTHONWARNINGS": "error"}


def command(*arguments, served):
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([KFPYTORCH, *arguments], env=environment(served), text=True, **outputs)


@pytest.mark.parametrize("token", ["two\nlines", "é"])
def test_invalid_token_is_reported_before_any_call(monkeypatch, token):
    monkeypatch.setenv(client.TOKEN, token)
    result = typed("jobs", "--server", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: KFPYTORCH_TOKEN does not contain a token: ")


# ---- the keys and types of the JSON output are those of the page about it


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json-output.md"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SIMPLE = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "true or false": lambda value: isinstance(value, bool),
    "time": lambda value: isinstance(value, str) and bool(TIME.fullmatch(value)),
    "any": lambda _: True,
}


def read_tables():
    parts = re.split(r"^## (\w+)$", PAGE.read_text(), flags=re.MULTILINE)
    rows = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
    return {name: dict(rows.findall(text)) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


TABLES = read_tables()


def differences(value, kind, path=""):
    if kind.endswith(" or null"):
        yield from () if value is None else differences(value, kind.removesuffix(" or null"), path)
    elif kind.startswith("list of "):
        for number, each in enumerate(value):
            yield from differences(each, kind.removeprefix("list of "), f"{path}[{number}]")
    elif kind.startswith("map of "):
        for key, each in value.items():
            yield from differences(each, kind.removeprefix("map of ").removesuffix("s"), f"{path}.{key}")
    elif kind in SIMPLE:
        yield from () if SIMPLE[kind](value) else (f"{path}: {value!r} is not {kind}",)
    else:
        yield from (f"{path}: {key}" for key in value.keys() ^ TABLES[kind].keys())
        for key in value.keys() & TABLES[kind].keys():
            yield from differences(value[key], TABLES[kind][key], f"{path}.{key}")


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["jobs", "--all"], "list of Job", 0),
        (["describe", "f2"], "Job", 0),
        (["wait", "f2"], "Job", 1),
        (["logs", "f1", "--rank", "0"], "LogLine", 0),
        *((["cancel", each], "CancelJobResponse", 0) for each in ("f1", "f2")),
        (["nodes"], "list of Node", 0),
        (["runtimes", "list"], "list of Runtime", 0),
    ],
)
def test_server_output_matches_the_documentation(served, arguments, kind, code):
    value = records(*arguments, code=code)
    assert value
    assert [*differences(value, kind)] == []


def test_watched_and_explained_jobs_match_the_documentation(served):
    served.succeed("f1-n0-0-aaa")
    value = records("describe", "f1", "--watch")
    assert (value.pop("change"), [*differences(value, "Job")]) == ("job", [])
    text = json.dumps({**a_job("f1-n0-0-aaa", "Running"), "apiVersion": "kubeflow.org/v1"})
    assert [*differences(records("explain", "-", text=text), "Explanation")] == []


def test_serve_check_report_matches_the_documentation(tmp_path):
    for flags, code in ((), 0), (("--nodes", "0"), 2):
        report = records("serve", "--check", "--port", "0", "--state-dir", str(tmp_path), *flags, code=code)
        assert [*differences(report, "Report")] == []


# ---- text without control characters that a terminal interprets


EVIL = "\x1b[31mred\x9b0m \u202egnp.exe\u202c \u2028next\x00"
SHOWN = r"\x1b[31mred\x9b0m \u202egnp.exe\u202c \u2028next\x00"


def test_events_and_command_output_contain_no_control_characters():
    assert job_encoding._encode_event(Event(reason="R", message=EVIL)).message == SHOWN
    job = wire.Job(name="j", verdict=wire.Verdict(phase="FAILED", message=EVIL))
    job.events.add(reason="R", message=EVIL)
    lines = [
        *tables.format_table(("A", "B"), [(EVIL, EVIL)]),
        *tables.format_verdict("FAILED", "", job.verdict),
        *inspect_commands._format_events(job),
    ]
    text = click.unstyle("\n".join(lines))  # A table cuts its last column at the width of the terminal.
    assert (text.count(SHOWN[:20]), printable.escape(text)) == (4, text)


def test_command_errors_contain_no_control_characters(capsys):
    problem = Problem(field="f", value=EVIL, message="is wrong", remedy="write another")
    command_errors.print_problems([problem])
    with pytest.raises(SystemExit):
        command_errors.exit_with_error(command_errors.UnusableInput(EVIL))
    assert capsys.readouterr().err == f"f: {SHOWN}\n  is wrong; write another\nError: {SHOWN}\n"
