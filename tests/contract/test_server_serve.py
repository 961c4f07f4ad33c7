"""`kfpytorch serve` as a process: its output, its access control and its exit."""

import asyncio
import os
import signal
import stat
import subprocess
import time

import grpc
import pytest
from certificates import Authority
from click.testing import CliRunner
from flyteidl.admin import agent_pb2 as admin
from flyteidl.service import agent_pb2_grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from server_process import ENVIRON, KFPYTORCH, serve

from backend_plugin import client
from backend_plugin.cli.commands import kfpytorch
from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts
from backend_plugin.embedded.state_lock import MARKER
from backend_plugin.server_address import Server

# Servers that do not start run in this process.
pytestmark = pytest.mark.usefixtures("restored_logging")

UNSET = dict.fromkeys(name for name in os.environ if name.startswith(("KFPYTORCH_", "OTEL_")))


def listed(endpoint, token):
    with grpc.insecure_channel(endpoint) as channel:
        stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
        metadata = [("authorization", f"Bearer {token}")] if token else []
        answer = stub.ListAgents(admin.ListAgentsRequest(), metadata=metadata, timeout=60)
        return [each.name for each in answer.agents[0].supported_task_categories]


def fail(*arguments):
    """Return the message of a server process that does not start."""
    command = [str(KFPYTORCH), "serve", "--port", "0", *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRON, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" not in ended.stderr
    return ended.stderr


def reject(*arguments):
    """Return the message for settings with which no server starts."""
    ended = CliRunner().invoke(kfpytorch, ["serve", "--port", "0", *arguments], env=UNSET)
    assert (ended.exit_code, bool(ended.stdout)) == (1, "--check" in arguments)
    assert isinstance(ended.exception, SystemExit)
    return ended.stderr


def test_server_file_token_gives_access_and_a_second_server_is_rejected(tmp_path):
    state = tmp_path / "state"
    with serve(tmp_path, ["--code-dir", tmp_path]) as here:
        assert here.info["pid"] == here.pid
        assert here.endpoint.startswith("127.0.0.1:")
        assert len(here.token) > 40
        assert stat.S_IMODE((state / "server.json").stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert listed(here.endpoint, here.token) == ["pytorch", "pytorch"]
        for token in (None, "wrong"):
            with pytest.raises(grpc.RpcError) as refused:
                listed(here.endpoint, token)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
        assert client.check_health(server=here.endpoint) == "SERVING"
        assert f"is in use by process {here.pid}" in fail("--state-dir", str(state))
        port = here.endpoint.rpartition(":")[2]
        other = tmp_path / "other"
        assert f"cannot listen on 127.0.0.1:{port}" in fail("--state-dir", str(other), "--port", port)
        assert not (other / "server.json").exists()
    with serve(tmp_path, ["--metrics-port", "0"]) as after_kill:
        assert after_kill.token != here.token
        assert listed(after_kill.endpoint, after_kill.token) == ["pytorch", "pytorch"]
        assert after_kill.metrics.samples()
        after_kill.process.send_signal(signal.SIGTERM)
        assert after_kill.process.wait(60) == 0
        assert not (state / "server.json").exists()
    assert CliRunner().invoke(kfpytorch, ["health", "--server", str(state)]).exit_code == 1


def test_commands_use_a_replaced_token(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    with serve(tmp_path, ["--token-file", file]) as here:
        assert (here.token, here.info["token_file"]) == ("", str(file))
        assert listed(here.endpoint, "first") == ["pytorch", "pytorch"]
        file.write_text("second\n")
        time.sleep(1.1)  # The server reads the file at most once a second.
        done = jobs(tmp_path / "state")
        assert (done.exit_code, done.stderr) == (0, "")
        file.unlink()
        done = jobs(tmp_path / "state")
        assert done.exit_code == 1
        assert f"cannot be read: {file}: No such file or directory" in done.stderr


def jobs(state, *more):
    arguments = ["jobs", "-o", "json", *more]
    return CliRunner().invoke(kfpytorch, arguments, env={"KFPYTORCH_STATE_DIR": str(state)})


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A server with TLS that several tests share. Its certificates are beside its state directory."""
    folder = tmp_path_factory.mktemp("tls")
    files = Authority().issue_server(folder)
    with serve(folder, ["--tls-certificate", files.certificate, "--tls-key", files.key]) as here:
        yield here


def test_local_commands_connect_to_a_server_with_tls(tls):
    assert tls.endpoint.startswith("grpcs://127.0.0.1:")
    for named in ((), ("--server", tls.endpoint)):
        done = jobs(tls.state, *named)
        assert (done.exit_code, done.stderr) == (0, "")
    refused = CliRunner().invoke(kfpytorch, ["runtimes", "packages", "x", "--server", str(tls.state)])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "embedded cluster cannot list the packages" in refused.stderr


def test_health_command_uses_the_name_in_the_server_certificate(tls):
    def run_health(*flags):
        done = CliRunner().invoke(kfpytorch, ["health", "--server", str(tls.state), *flags])
        return done.exit_code, done.stdout

    for flags in ((), ("--service", "liveness"), ("--tls-server-name", "server.test")):
        assert run_health(*flags) == (0, "SERVING\n")
    for flags in (("--tls-server-name", "another.example"), ("--service", "nonsense")):
        assert run_health(*flags) == (1, "")
    tls.process.send_signal(signal.SIGSTOP)
    try:
        assert run_health() == (1, "")
    finally:
        tls.process.send_signal(signal.SIGCONT)


def probe(address, token="", ca=""):
    """Return what the doctor finds at an address that is not a server of this user."""
    server = Server(address=address, token=token, ca=str(ca))
    found = asyncio.run(external_probes.probe_external(Facts(namespace="any"), (), server)).connector
    assert found is not None
    return found


def test_doctor_accepts_the_certificate_of_a_connector_as_its_ca(tls):
    assert "from a CA that is not trusted here" in probe(tls.endpoint, tls.token).problem
    certificate = tls.state.parent / "tls.crt"
    assert probe(tls.endpoint, tls.token, certificate).problem == ""
    assert "rejects the token" in probe(tls.endpoint, "", certificate).problem


async def test_reset_handshake_is_reported_without_a_tls_claim():
    async def reset(_, writer):
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        address = f"grpcs://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert (await asyncio.to_thread(probe, address)).problem.startswith("does not answer: ")


def reflect(channel):
    """Return the services, and a function that calls a method with JSON; all types are from the server."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)

    def call(service, method, fields):
        described = pool.FindServiceByName(service).methods_by_name[method]
        request = json_format.ParseDict(fields, message_factory.GetMessageClass(described.input_type)())
        reply = message_factory.GetMessageClass(described.output_type)
        send = channel.unary_unary(f"/{service}/{method}", type(request).SerializeToString, reply.FromString)
        return json_format.MessageToDict(send(request, timeout=10), descriptor_pool=pool)

    return sorted(database.get_services()), call


def test_reflection_works_over_tls_without_generated_classes(tls):
    ca = (tls.state.parent / "ca.crt").read_bytes()
    with grpc.secure_channel(
        tls.endpoint.removeprefix("grpcs://"),
        grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(ca), grpc.access_token_call_credentials(tls.token)
        ),
    ) as channel:
        services, call = reflect(channel)
        request = {"template": {"type": "pytorch"}, "outputPrefix": "s3://b/x"}
        tasks = "flyteidl.service.AsyncAgentService"
        reference = call(tasks, "CreateTask", request)["resourceMeta"]
        task = call(tasks, "GetTask", {"resourceMeta": reference})["resource"]
        (agent,) = call("flyteidl.service.AgentMetadataService", "ListAgents", {})["agents"]
        assert call("grpc.health.v1.Health", "Check", {}) == {"status": "SERVING"}
        assert len(call("kfpytorch_idl.v1.NodeService", "ListNodes", {})["nodes"]) == 2
    assert services == [
        "flyteidl.service.AgentMetadataService",
        "flyteidl.service.AsyncAgentService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "kfpytorch_idl.v1.JobService",
        "kfpytorch_idl.v1.NodeService",
        "kfpytorch_idl.v1.RuntimeService",
    ]
    assert agent["supportedTaskTypes"] == ["pytorch"]
    assert agent["supportedTaskCategories"][-1] == {"name": "pytorch", "version": 1}
    assert task["phase"] == "FAILED"
    assert "task_execution_metadata.namespace" in task["message"]


def test_server_without_authentication_requires_no_token(tmp_path):
    with serve(tmp_path, ["--allow-unauthenticated"]) as here:
        assert listed(here.endpoint, None) == ["pytorch", "pytorch"]
        assert jobs(tmp_path / "state").exit_code == 0


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ("objects.sqlite", "state/objects.sqlite: Is a directory; check that this user may write"),
        ("lock", "state/lock: Is a directory; check that this user may write there"),
        ("server.json", "state/server.json: cannot be written (Is a directory), so commands would not find"),
    ],
)
def test_unusable_state_directory_is_reported_in_one_sentence(tmp_path, there, message):
    (tmp_path / "state" / there).mkdir(parents=True)
    (tmp_path / "state" / MARKER).touch()
    run = fail if there == "server.json" else reject  # The last file is written by a server that listens.
    assert message in run("--state-dir", str(tmp_path / "state"))


def test_directory_with_foreign_files_is_rejected_and_unchanged(tmp_path):
    data = tmp_path / "pods" / "f3a4" / "data.csv"
    data.parent.mkdir(parents=True)
    data.write_text("years of work")
    tmp_path.chmod(0o755)
    for check in ([], ["--check"]):
        message = reject("--state-dir", str(tmp_path), *check)
        assert "contains files that do not belong to an embedded cluster, such as 'pods'" in message
    assert (data.read_text(), tmp_path.stat().st_mode & 0o777) == ("years of work", 0o755)
    assert [path.name for path in tmp_path.iterdir()] == ["pods"]


def test_command_with_closed_output_succeeds():
    command = ["sh", "-c", f"exec {KFPYTORCH} serve --check --port 0 >&-"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRON, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
