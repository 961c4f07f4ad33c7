"""The doctor's messages about a connector that it cannot reach: which side is wrong, and the remedy."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from certificates import Authority
from tiny_service import serving

from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts, ProbeResult
from backend_plugin.server_address import Server
from backend_plugin.shell.credentials import Tls, build_server_credentials

OURS, OTHERS = Authority("ours"), Authority("others")


@pytest.fixture(autouse=True)
def nobody_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KFPYTORCH_STATE_DIR", str(tmp_path / "nobodys"))


@pytest.fixture
def unused() -> Iterator[int]:
    """A bound port on which no server listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def secured(folder: Path, age: timedelta = timedelta(0), *, mutual: bool = False) -> grpc.ServerCredentials:
    files = Tls(
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        client_ca=folder / "ca.crt" if mutual else None,
    )
    OURS.issue("server", files.certificate, files.key, age)
    (folder / "ca.crt").write_bytes(OURS.pem)
    (folder / "others.crt").write_bytes(OTHERS.pem)
    return build_server_credentials(files)


async def tried(address: str, certificate: Path | str = "", **files: str) -> ProbeResult:
    server = Server(address=address, ca=str(certificate), **files)
    found = (await external_probes.probe_external(Facts(namespace="any"), (), server)).connector
    assert found is not None
    return found


@asynccontextmanager
async def listening(credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    async with serving(credentials=credentials) as served:
        yield int(served.address.rpartition(":")[2])


def probe(
    name: str,
    scheme: str = "grpcs://",
    credentials: grpc.ServerCredentials | None = None,
    certificate: Path | str = "",
) -> tuple[str, str]:
    """Return the problem and the remedy, with PORT in place of the port."""

    async def run_probe() -> ProbeResult:
        async with listening(credentials) as port:
            found = await tried(f"{scheme}{name}:{port}", certificate)
            return ProbeResult(
                what="", trouble=found.trouble, remedy=found.remedy.replace(f":{port}", ":PORT")
            )

    found = asyncio.run(run_probe())
    return found.trouble, found.remedy


def test_trusted_certificate_causes_no_tls_problem(tmp_path: Path) -> None:
    trouble, _ = probe("127.0.0.1", credentials=secured(tmp_path), certificate=tmp_path / "ca.crt")
    assert trouble == "serves no tasks of type pytorch; its types are none"


@pytest.fixture
def resetting() -> Iterator[int]:
    """The port of a server that closes every connection after the first byte."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.recv(1)  # Unread data turns the close into a reset.

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve)
        server.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        server.join()


def test_reset_handshake_is_reported_without_a_tls_claim(resetting: int) -> None:
    found = asyncio.run(tried(f"grpcs://127.0.0.1:{resetting}"))
    assert found.trouble.startswith("does not answer: ")


ASKS = """
import asyncio, sys
from backend_plugin.server_address import Server
from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts
server = Server(address=sys.argv[1])
print(asyncio.run(external_probes.probe_external(Facts(namespace="any"), (), server)).connector.trouble)
"""


async def test_remedy_for_an_unknown_authority_works(tmp_path: Path) -> None:
    """gRPC reads the variable once per process, so this test uses another process."""

    async with listening(secured(tmp_path)) as port:
        known = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(tmp_path / "ca.crt")}
        command = [sys.executable, "-c", ASKS, f"grpcs://127.0.0.1:{port}"]
        done = await asyncio.create_subprocess_exec(*command, env=known, stdout=subprocess.PIPE)
        result = (await done.communicate())[0].decode()
    assert result == "serves no tasks of type pytorch; its types are none\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), ("not PEM", "no certificate or crl found")],
)
def test_unusable_ca_file_is_reported_instead_of_the_server(
    tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "roots.crt"
    if content is not None:
        file.write_text(content)
    trouble, remedy = probe("127.0.0.1", credentials=secured(tmp_path), certificate=file)
    assert f"{file}" in trouble
    assert why in trouble
    assert remedy.startswith("name PEM files with --ca")


def test_mutual_tls_server_is_reported_as_requiring_tls(tmp_path: Path) -> None:
    assert probe("127.0.0.1", "", secured(tmp_path, mutual=True))[0] == "requires TLS, and the call used none"
