"""``kfpytorch serve --check``: effective settings, their sources, and problems."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.embedded.state_lock import acquire_lock

KUBECONFIG = {
    "current-context": "prod",
    "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://api.example"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


@pytest.fixture(autouse=True)
def clear_environment(monkeypatch, tmp_path):
    for name in os.environ:
        if name.startswith(("KFPYTORCH_", "OTEL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def check(*arguments, env=None):
    return CliRunner().invoke(kfpytorch, ["serve", "--check", "--port", "0", *arguments], env=env)


def as_json(*arguments, env=None):
    result = check(*arguments, "-o", "json", env=env)
    report = json.loads(result.stdout)
    assert report["ok"] is (result.exit_code == 0)
    return report


def test_each_server_setting_is_shown_with_its_source(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(
        yaml.safe_dump({"server": {"drain-timeout": "5s"}, "plugins": {"k8s": {"scheduler-name": "s"}}})
    )
    report = as_json("-s", str(file), "--gpus", "0", env={"KFPYTORCH_MAX_CONCURRENT_RPCS": "9"})
    values = {key: (each["value"], each["source"]) for key, each in report["settings"].items()}
    assert values["drain-timeout"] == ("5s", str(file))
    assert values["max-concurrent-rpcs"] == (9, "KFPYTORCH_MAX_CONCURRENT_RPCS")
    assert values["embedded.gpus"] == (0, "--gpus")
    assert values["host"] == ("127.0.0.1", "default")
    assert values["state-dir"] == (str(tmp_path / "state/kfpytorch"), "default")
    assert values["embedded.cpus"] == (None, "default")


def test_each_platform_setting_is_shown_with_its_source(tmp_path):
    gang = {"scheduler": "kueue", "by-project": {"vision/production": {"queue": "vision"}}}
    k8s = {"default-cpus": "500m", "pod-pending-timeout": "5m", "kfpytorch": {"gang": gang}}
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({"plugins": {"k8s": k8s}, "task_resources": {"limits": {"cpu": "8"}}}))
    settings = as_json("-s", str(file))["settings"]
    prefix = "plugins.k8s."
    values = {key.removeprefix(prefix): each for key, each in settings.items() if key.startswith(prefix)}
    assert {key: each["value"] for key, each in values.items() if each["source"] == str(file)} == {
        "default-cpus": "500m",
        "pod-pending-timeout": "300s",
        "kfpytorch.gang.scheduler": "kueue",
        "kfpytorch.gang.by-project": {"vision/production": {"queue": "vision"}},
        "kfpytorch.task-resources.limits": {"cpu": "8"},
    }
    assert values["default-memory"] == {"value": "1Gi", "source": "default"}
    assert values["kfpytorch.training-env"]["value"] == {"NCCL_DEBUG": "WARN"}


def test_text_output_has_one_setting_per_line():
    result = check("--memory", "1024Mi", "--images", "a=/v")
    assert result.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if len(line.split()) > 1)
    assert lines["embedded.memory"] == "1Gi  (--memory)"
    assert lines["embedded.images"] == '{"a":"/v"}  (--images)'
    assert lines["port"] == "0  (--port)"
    assert lines["embedded.nodes"] == "2  (default)"
    assert lines["plugins.k8s.default-cpus"] == "1  (default)"


def test_problems_of_file_sections_and_flags_are_reported_together(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({"server": {"hots": 1}, "plugins": {"k8s": {"scheduler-nam": "s"}}}))
    result = check("-s", str(file), "--nodes", "0")
    # An invalid option is an invalid command line; an invalid file is not.
    assert (result.exit_code, check("-s", str(file)).exit_code) == (2, 1)
    assert result.stdout == ""
    assert result.stderr.splitlines()[::2] == ["server.hots: 1", "--nodes: '0'", "scheduler-nam: 's'"]
    fields = [each["field"] for each in as_json("-s", str(file))["problems"]]
    assert fields == ["server.hots", "scheduler-nam"]


def test_files_directories_and_ports_of_settings_are_checked(tmp_path):
    (tmp_path / "file").write_text("x y")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, metrics_port = (str(each.getsockname()[1]) for each in (taken, other))
        tls = ("--tls-certificate", "/absent", "--tls-key", "/absent")
        files = ("--token-file", str(tmp_path / "file"), "--state-dir", str(tmp_path / "file/state"))
        report = as_json(*tls, *files, "--port", port, "--metrics-port", metrics_port)
    assert {each["field"]: each["message"] for each in report["problems"]} == {
        "server.tls.certificate": "/absent: No such file or directory",
        "server.token-file": f"{tmp_path}/file: contains no token; "
        "write one word, for example from: openssl rand -hex 32",
        "server.state-dir": f"{tmp_path}/file is not a directory",
        "server.port": "cannot listen on this port: Address already in use",
        "server.metrics.port": "cannot listen on this port: Address already in use",
    }


@pytest.mark.parametrize(
    ("key", "flags"),
    [
        ("token-file", ["--token-file", "/dev/zero"]),
        ("tls.certificate", ["--tls-certificate", "/dev/zero", "--tls-key", "/dev/zero"]),
        ("embedded.pod-templates", ["--pod-templates", "/dev/zero"]),
    ],
)
def test_device_file_is_rejected_and_not_read(key: str, flags: list[str]) -> None:
    (problem,) = as_json(*flags)["problems"]
    assert (problem["field"], problem["message"]) == (f"server.{key}", "/dev/zero: is not a regular file")


def test_settings_size_is_limited_and_pod_templates_are_checked(tmp_path):
    result = check("-s", "/dev/zero")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "settings /dev/zero: is larger than the limit of 16,777,216 bytes" in result.stderr
    (tmp_path / "t.yaml").write_text("- a")
    (problem,) = as_json("--pod-templates", str(tmp_path / "t.yaml"))["problems"]
    assert "contains list instead of an object" in problem["message"]


def test_closed_output_pipe_ends_the_check_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    program = "import sys; from backend_plugin.cli.commands import kfpytorch; kfpytorch(sys.argv[1:])"
    command = [sys.executable, "-c", program, "serve", "--check", "--port", "0"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_unsupported_trace_protocol_is_reported():
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
    (problem,) = as_json(env=env)["problems"]
    assert problem["message"].startswith("traces are sent by grpc only, not by http/json")


def test_state_directory_of_a_running_server_is_reported(tmp_path):
    with acquire_lock(tmp_path / "state/kfpytorch"):
        (problem,) = as_json()["problems"]
        message = f"is in use by process {os.getpid()}"
        assert (problem["field"], problem["message"]) == ("server.state-dir", message)
    assert as_json()["ok"]


def test_missing_kubeconfig_or_context_is_reported(tmp_path):
    file = tmp_path / "config"
    options = ("--cluster", "kubernetes", "--kubeconfig", str(file))
    result = check(*options)
    assert (result.exit_code, f"server.kubernetes.kubeconfig: {file}" in result.stderr) == (1, True)
    file.write_text(yaml.safe_dump(KUBECONFIG))
    good = as_json(*options)
    assert (good["problems"], good["settings"]["host"]["value"]) == ([], "0.0.0.0")
    result = check(*options, "--context", "staging")
    assert (result.exit_code, "staging" in result.stderr) == (1, True)
