"""`kfpytorch serve` as a process: its output, its access control and its exit."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Authority
from click.testing import CliRunner, Result
from flyteidl.admin import agent_pb2 as admin
from grpc_health.v1 import health_pb2

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.connection import Server
from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts, ProbeResult
from backend_plugin.embedded.state_lock import MARKER

FOREIGN = Path(__file__).parents[1] / "e2e/scripts/foreign.py"
KFPYTORCH = Path(sys.executable).with_name("kfpytorch")
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith(("KFPYTORCH_", "OTEL_"))}


@contextmanager
def serve(state: Path, *said: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any], list[str]]]:
    """Start a server; yield the process, its `server.json` and its log lines until it was ready."""
    command = [str(KFPYTORCH), "serve", "--state-dir", str(state), "--port", "0", *said]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRON) as process:
        assert process.stderr is not None
        lines: list[str] = []
        try:
            while not lines or json.loads(lines[-1])["message"] != "ready":
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            yield process, json.loads((state / "server.json").read_text()), lines
        finally:
            process.kill()


def listed(endpoint: str, token: str | None) -> list[str]:
    with grpc.insecure_channel(endpoint) as channel:
        ask = channel.unary_unary(
            "/flyteidl.service.AgentMetadataService/ListAgents",
            request_serializer=admin.ListAgentsRequest.SerializeToString,
            response_deserializer=admin.ListAgentsResponse.FromString,
        )
        metadata = [("authorization", f"Bearer {token}")] if token else []
        answer = ask(admin.ListAgentsRequest(), metadata=metadata, timeout=10)
        return [each.name for each in answer.agents[0].supported_task_categories]


def health(endpoint: str) -> int:
    with grpc.insecure_channel(endpoint) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer = health_pb2.HealthCheckResponse.FromString(check(b"", timeout=10))
        return answer.status


def test_server_file_token_gives_access_and_a_second_server_is_rejected(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serve(state, "--code-dir", str(tmp_path)) as (process, here, _):
        assert here["pid"] == process.pid
        assert here["endpoint"].startswith("127.0.0.1:")
        assert stat.S_IMODE((state / "server.json").stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert listed(here["endpoint"], here["token"]) == ["pytorch", "pytorch"]
        for token in (None, "wrong"):
            with pytest.raises(grpc.RpcError) as refused:
                listed(here["endpoint"], token)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
        assert health(here["endpoint"]) == health_pb2.HealthCheckResponse.SERVING

        said = [str(KFPYTORCH), "serve", "--state-dir", str(state), "--port", "0"]
        second = subprocess.run(said, check=False, capture_output=True, text=True, env=ENVIRON)
        assert (second.returncode, second.stdout) == (1, "")
        assert f"is in use by process {process.pid}" in second.stderr
        port = here["endpoint"].rpartition(":")[2]
        said = [str(KFPYTORCH), "serve", "--state-dir", str(tmp_path / "other"), "--port", port]
        third = subprocess.run(said, check=False, capture_output=True, text=True, env=ENVIRON)
        assert (third.returncode, third.stdout) == (1, "")
        assert f"cannot listen on 127.0.0.1:{port}" in third.stderr
        assert not (tmp_path / "other/server.json").exists()

        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not (state / "server.json").exists()


def test_server_starts_with_a_new_token_after_a_killed_one(tmp_path: Path) -> None:
    tokens = []
    for how in ((), ("--metrics-port", "0")):
        with serve(tmp_path / "state", *how) as (process, here, lines):
            assert listed(here["endpoint"], here["token"]) == ["pytorch", "pytorch"]
            tokens.append(here["token"])
            if how:
                assert "metrics at http://127.0.0.1:" in "".join(lines)
            process.kill()
            process.wait()
    assert tokens[0] != tokens[1]
    assert len(tokens[0]) > 40


def test_commands_use_a_replaced_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with serve(tmp_path / "state", "--token-file", str(file)) as (_, here, _lines):
        assert (here["token"], here["token_file"]) == ("", str(file))
        assert listed(here["endpoint"], "first") == ["pytorch", "pytorch"]
        file.write_text("second\n")
        time.sleep(1.1)  # The server reads the file at most once a second.
        done = jobs(tmp_path / "state")
        assert (done.exit_code, done.stderr) == (0, "")
        file.unlink()
        done = jobs(tmp_path / "state")
        assert done.exit_code == 1
        assert f"cannot be read: {file}: No such file or directory" in done.stderr


def jobs(state: Path, *more: str) -> Result:
    said = ["jobs", "-o", "json", *more]
    return CliRunner().invoke(kfpytorch, said, env={"KFPYTORCH_STATE_DIR": str(state)})


def test_local_commands_connect_to_a_server_with_tls(tmp_path: Path) -> None:
    Authority().issue("server", tmp_path / "tls.crt", tmp_path / "tls.key")
    tls = ("--tls-certificate", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with serve(tmp_path / "state", *tls) as (_, here, _lines):
        assert here["endpoint"].startswith("grpcs://127.0.0.1:")
        for named in ((), ("--server", here["endpoint"])):
            done = jobs(tmp_path / "state", *named)
            assert (done.exit_code, done.stderr) == (0, "")


def test_health_command_uses_the_name_in_the_server_certificate(tmp_path: Path) -> None:
    Authority().issue("server", tmp_path / "tls.crt", tmp_path / "tls.key")
    tls = ("--tls-certificate", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))

    def run_health(*flags: str) -> tuple[int, str]:
        done = CliRunner().invoke(kfpytorch, ["health", "--server", str(tmp_path / "state"), *flags])
        return done.exit_code, done.stdout

    with serve(tmp_path / "state", *tls) as (process, _, _lines):
        well = (0, "SERVING\n")
        assert [
            run_health(),
            run_health("--service", "liveness"),
            run_health("--tls-server-name", "server.test"),
        ] == [well] * 3
        assert run_health("--tls-server-name", "another.example") == (1, "")
        assert run_health("--service", "nonsense") == (1, "")
        process.send_signal(signal.SIGSTOP)
        try:
            assert run_health() == (1, "")
        finally:
            process.send_signal(signal.SIGCONT)
    assert run_health() == (1, "")


def test_doctor_accepts_the_certificate_of_a_connector_as_its_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "tls.crt"
    Authority().issue("server", certificate, tmp_path / "tls.key")
    tls = ("--tls-certificate", str(certificate), "--tls-key", str(tmp_path / "tls.key"))
    monkeypatch.setenv("KFPYTORCH_STATE_DIR", str(tmp_path / "nobodys"))
    with serve(tmp_path / "state", *tls) as (_, here, _lines):

        def run_health(known: str) -> ProbeResult:
            server = Server(address=here["endpoint"], ca=known)
            tried = asyncio.run(external_probes.probe_external(Facts(namespace="any"), (), server))
            assert tried.connector is not None
            return tried.connector

        monkeypatch.setenv("KFPYTORCH_TOKEN", here["token"])
        stranger = run_health("")
        assert "from a CA that is not trusted here" in stranger.trouble
        assert f"kfpytorch doctor --connector {here['endpoint']}" in stranger.remedy
        assert run_health(str(certificate)).trouble == ""
        monkeypatch.delenv("KFPYTORCH_TOKEN")
        assert "rejects the token" in run_health(str(certificate)).trouble


def test_reflection_works_over_tls_with_a_generic_client(tmp_path: Path) -> None:
    authority = Authority()
    authority.issue("server", tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    tls = ("--tls-certificate", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with serve(tmp_path / "state", *tls) as (_, here, _lines):
        endpoint = here["endpoint"].removeprefix("grpcs://")
        command = [sys.executable, "-I", str(FOREIGN), endpoint, here["token"]]
        seen = subprocess.run([*command, str(tmp_path / "ca.crt")], check=True, stdout=subprocess.PIPE)
        assert json.loads(seen.stdout)["health"] == {"status": "SERVING"}
        assert "flyteidl.service.AsyncAgentService" in json.loads(seen.stdout)["services"]


def test_server_without_authentication_requires_no_token(tmp_path: Path) -> None:
    with serve(tmp_path / "state", "--allow-unauthenticated") as (_, here, _lines):
        assert listed(here["endpoint"], None) == ["pytorch", "pytorch"]
        assert jobs(tmp_path / "state").exit_code == 0


def test_missing_token_file_is_reported(tmp_path: Path) -> None:
    said = [str(KFPYTORCH), "serve", "--state-dir", str(tmp_path), "--token-file", str(tmp_path / "none")]
    done = subprocess.run(said, check=False, capture_output=True, text=True, env=ENVIRON)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "none") in done.stderr


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            "objects.sqlite/",
            "state/objects.sqlite: Is a directory; check that this user may write",
        ),
        ("lock/", "state: Is a directory; check that this user may write there"),
        ("server.json/", "state/server.json: cannot be written (Is a directory), so commands would not find"),
    ],
)
def test_unusable_state_directory_is_reported_in_one_sentence(tmp_path: Path, there: str, said: str) -> None:
    path = tmp_path / "state" / there
    path.parent.mkdir()
    if there.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    (tmp_path / "state" / MARKER).touch()
    command = [str(KFPYTORCH), "serve", "--state-dir", str(tmp_path / "state"), "--port", "0"]
    told = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRON, timeout=60)
    assert told.returncode == 1
    assert said in told.stderr
    assert "Traceback" not in told.stderr


def test_directory_with_foreign_files_is_rejected_and_unchanged(tmp_path: Path) -> None:
    data = tmp_path / "pods" / "f3a4" / "data.csv"
    data.parent.mkdir(parents=True)
    data.write_text("years of work")
    tmp_path.chmod(0o755)
    command = [str(KFPYTORCH), "serve", "--state-dir", str(tmp_path), "--port", "0"]
    for check in ([], ["--check"]):
        done = subprocess.run(
            [*command, *check], check=False, capture_output=True, text=True, env=ENVIRON, timeout=60
        )
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert (
            "contains files that do not belong to an embedded cluster, such as 'pods'; name a new"
            in done.stderr
        )
    assert (data.read_text(), tmp_path.stat().st_mode & 0o777) == ("years of work", 0o755)
    assert [path.name for path in tmp_path.iterdir()] == ["pods"]


def test_command_with_closed_output_succeeds() -> None:
    command = ["sh", "-c", f"exec {KFPYTORCH} serve --check --port 0 >&-"]
    told = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRON, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
