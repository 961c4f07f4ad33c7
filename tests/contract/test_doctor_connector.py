"""The doctor's messages about a connector that it cannot reach: which side is wrong, and the remedy."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Authority
from tiny_service import serving

from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts, ProbeResult
from backend_plugin.server_address import Server
from backend_plugin.shell.credentials import build_server_credentials

OURS = Authority("ours")


@pytest.fixture(autouse=True)
def nobody_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KFPYTORCH_STATE_DIR", str(tmp_path / "nobodys"))


def secured(folder: Path, *, mutual: bool = False) -> grpc.ServerCredentials:
    return build_server_credentials(OURS.issue_server(folder, mutual=mutual))


def probe(address: str, certificate: Path | str = "") -> ProbeResult:
    server = Server(address=address, ca=str(certificate))
    found = asyncio.run(external_probes.probe_external(Facts(namespace="any"), (), server)).connector
    assert found is not None
    return found


def probe_server(scheme: str, credentials: Any, certificate: Path | str = "") -> ProbeResult:
    async def run() -> ProbeResult:
        async with serving(credentials=credentials) as served:
            return await asyncio.to_thread(probe, f"{scheme}{served.address}", certificate)

    return asyncio.run(run())


async def test_reset_handshake_is_reported_without_a_tls_claim() -> None:
    async def reset(_: object, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        address = f"grpcs://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert (await asyncio.to_thread(probe, address)).trouble.startswith("does not answer: ")


ASK = """
import asyncio, sys
from backend_plugin.cli.commands import kfpytorch
kfpytorch(["jobs", "--server", sys.argv[1]])
"""


async def test_roots_of_grpc_are_trusted(tmp_path: Path) -> None:
    """gRPC reads the variable once per process, so this test uses another process."""
    async with serving(credentials=secured(tmp_path)) as served:
        known = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(tmp_path / "ca.crt")}
        command = [sys.executable, "-c", ASK, f"grpcs://{served.address}"]
        done = await asyncio.create_subprocess_exec(*command, env=known, stderr=subprocess.PIPE)
        errors = (await done.communicate())[1].decode()
    assert "does not support this call" in errors


def test_unusable_ca_file_is_reported_instead_of_the_server(tmp_path: Path) -> None:
    found = probe_server("grpcs://", secured(tmp_path), tmp_path / "absent")
    assert "absent cannot be used: No such file or directory" in found.trouble
    assert found.remedy.startswith("name PEM files with --ca")


def test_mutual_tls_server_is_reported_as_requiring_tls(tmp_path: Path) -> None:
    assert probe_server("", secured(tmp_path, mutual=True)).trouble == "requires TLS, and the call used none"
