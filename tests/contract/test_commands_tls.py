"""The commands against servers with TLS: their options, and the message for each kind of failure."""

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from certificates import Authority
from click.testing import CliRunner
from served_jobs import FewNodes, a_job, serving_jobs

from backend_plugin import client
from backend_plugin.cli.commands import kfpytorch
from backend_plugin.server_address import FILES
from backend_plugin.shell import server_file
from backend_plugin.shell.credentials import build_server_credentials

OURS, OTHERS = Authority("ours"), Authority("others")
Port = Callable[..., int]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with the files of two authorities, and no server of this user."""
    for name in (client.SERVER, client.TOKEN, *FILES.values()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(server_file.STATE, str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    for name, authority in (("ours", OURS), ("others", OTHERS)):
        (tmp_path / f"{name}.crt").write_bytes(authority.pem)
        authority.issue("client", tmp_path / f"{name}-client.crt", tmp_path / f"{name}-client.key")
    (tmp_path / "text").write_text("no PEM")
    return tmp_path


@pytest.fixture
def serve(folder):
    with contextlib.ExitStack() as stack:

        def start(*, tls=True, token=None, **certificate):
            credentials = build_server_credentials(OURS.issue_server(folder, **certificate)) if tls else None
            serving = serving_jobs(token=token, nodes=FewNodes("node-0"), credentials=credentials)
            served = stack.enter_context(serving)
            served.apply(a_job("f1-n0-0-aaa", "Running"))
            return int(served.endpoint.rpartition(":")[2])

        yield start


def run(*arguments):
    return CliRunner().invoke(kfpytorch, arguments)


def fail(*arguments):
    """Return the message of a command that fails because of the connection."""
    result = run("jobs", *arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "scheme"),
    [
        *((("jobs",), scheme) for scheme in ("grpcs://", "")),
        *((command, "grpcs://") for command in (("logs", "f1"), ("cancel", "f1"), ("nodes",), ("health",))),
    ],
)
def test_options_set_all_credentials(serve: Port, arguments: tuple[str, ...], scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{serve(mutual=True, token='open-sesame')}"
    result = run(
        *arguments,
        *("--server", address, "--token", "open-sesame", "--ca", "ours.crt"),
        *("--cert", "ours-client.crt", "--key", "ours-client.key", "--tls-server-name", "server.test"),
    )
    # This server has no health service.
    expected = (1, "does not support this call") if arguments == ("health",) else (0, "")
    assert (result.exit_code, expected[1] in result.stderr) == (expected[0], True), result.output


def test_environment_sets_all_credentials(serve, monkeypatch):
    monkeypatch.setenv(client.SERVER, f"grpcs://127.0.0.1:{serve(mutual=True, token='open-sesame')}")
    monkeypatch.setenv(client.TOKEN, "open-sesame\n")  # The newline is ignored.
    for name, value in (("ca", "ours.crt"), ("cert", "ours-client.crt"), ("key", "ours-client.key")):
        monkeypatch.setenv(FILES[name], value)
    monkeypatch.setenv(FILES["tls_server_name"], "server.test")
    assert run("jobs").exit_code == 0
    assert run("jobs", "--token", "another").exit_code == 1


CA, TLS = ("--ca", "ours.crt"), "grpcs://127.0.0.1:PORT"
PLAIN, LOCAL = "127.0.0.1:PORT", "grpcs://localhost:PORT"
THEIRS = (*CA, "--cert", "others-client.crt", "--key", "others-client.key")
OLD, MUTUAL = {"age": timedelta(days=7)}, {"mutual": True}
MESSAGES = {
    "untrusted": ({}, TLS, (), "has a certificate from a CA that is not trusted here: "),
    "another ca": ({}, TLS, ("--ca", "others.crt"), "; name the file of its authority: --ca FILE, or set "),
    "wrong name": ({}, LOCAL, CA, "not for localhost; write --tls-server-name 127.0.0.1, "),
    "no tls": ({"tls": False}, TLS, (), "does not use TLS, and the call used it; write --server 127.0.0.1:"),
    "tls": ({}, PLAIN, (), "requires TLS, and the call used none; write --server grpcs://127.0.0.1:PORT"),
    "mutual tls": (MUTUAL, PLAIN, (), "requires TLS, and the call used none; write --server grpcs://"),
    "no client certificate": (MUTUAL, TLS, CA, "requires a certificate of its clients; write --cert FILE "),
    "another client certificate": (MUTUAL, TLS, THEIRS, "does not accept the certificate in others-client."),
    "expired": (OLD, TLS, CA, "has a certificate that is not valid now: certificate has expired; "),
}


@pytest.mark.parametrize(("how", "address", "options", "message"), MESSAGES.values(), ids=MESSAGES)
def test_failed_connection_is_explained_with_its_remedy(serve, how, address, options, message):
    port = str(serve(**how))
    address = address.replace("PORT", port)
    found = fail("--server", address, *options)
    assert found.startswith(f"Error: the server at {address} ")
    assert message.replace("PORT", port) in found


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (("--ca", "absent"), "absent: No such file or directory"),
        (("--ca", "text"), "text cannot be used: "),
        ((*CA, "--cert", "text", "--key", "ours-client.key"), "text and ours-client.key cannot be used: "),
        ((*CA, "--cert", "ours-client.crt", "--key", "others-client.key"), "key values mismatch"),
    ],
)
def test_unusable_credential_file_is_reported(serve, files, named):
    assert named in fail("--server", f"grpcs://127.0.0.1:{serve()}", *files)


@pytest.mark.parametrize("names", [("cert", "key"), ("key", "cert")])
def test_option_completes_the_key_pair_of_the_environment(serve, monkeypatch, names):
    files = {"cert": "ours-client.crt", "key": "ours-client.key"}
    option, variable = names
    monkeypatch.setenv(FILES[variable], files[variable])
    address = f"grpcs://127.0.0.1:{serve(mutual=True)}"
    result = run("jobs", "--server", address, *CA, f"--{option}", files[option])
    assert (result.exit_code, result.stderr) == (0, "")


def test_certificate_without_its_key_is_rejected(folder, monkeypatch):
    result = run("jobs", "--server", "127.0.0.1:1", "--cert", "ours-client.crt")
    assert (result.exit_code, "--cert and --key belong together" in result.stderr) == (2, True)
    monkeypatch.setenv(FILES["cert"], "ours-client.crt")
    assert "write --key FILE, or set KFPYTORCH_KEY" in fail("--server", "127.0.0.1:1")


@pytest.mark.parametrize("address", ["here", "here:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_address_without_a_port_is_rejected(folder, address, monkeypatch):
    result = run("jobs", "--server", address)
    assert (result.exit_code, "HOST:PORT" in result.stderr) == (2, True)
    monkeypatch.setenv(client.SERVER, address)
    assert f"{address} has no port; write HOST:PORT" in fail()


def test_unknown_host_is_reported(folder):
    assert "the DNS has no server.invalid" in fail("--server", "server.invalid:8000")
