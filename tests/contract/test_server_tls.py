"""Server certificates and client authentication."""

import asyncio
from pathlib import Path

import grpc
import pytest
from certificates import Authority
from tiny_service import TinyServed, code_of, health, is_answered, serving, wait_until

from backend_plugin.shell.credentials import Tls, build_server_credentials
from backend_plugin.shell.reloaded_value import UnusableCredentials

OURS, OTHERS = Authority("ours"), Authority("others")
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
OK = grpc.StatusCode.OK


async def call_server(
    served: TinyServed, root: bytes, key: bytes | None = None, chain: bytes | None = None
) -> bytes:
    """Call the server over a new connection."""
    credentials = grpc.ssl_channel_credentials(root, key, chain)
    async with grpc.aio.secure_channel(served.address, credentials) as channel:
        return await served.echo(channel)


async def test_client_certificate_without_an_accepted_name_is_rejected(tmp_path: Path) -> None:
    OURS.issue("flytepropeller", tmp_path / "client.crt", tmp_path / "client.key")
    own = ((tmp_path / "client.key").read_bytes(), (tmp_path / "client.crt").read_bytes())

    async def calls(*names: str) -> tuple[grpc.StatusCode, str]:
        credentials = build_server_credentials(OURS.issue_server(tmp_path, mutual=True))
        async with serving(credentials=credentials, client_names=frozenset(names)) as served:
            client = grpc.ssl_channel_credentials(OURS.pem, *own)
            async with grpc.aio.secure_channel(served.address, client) as channel:
                assert await health(channel, "liveness") == "SERVING"
                call = channel.unary_unary("/tiny.Tiny/Say")(b"hello", timeout=60)
                stream = channel.unary_stream("/tiny.Tiny/Count")(b"", timeout=60)
                first = await anext(aiter(stream), b"") if await call.code() is OK else b""
                stream.cancel()
                return await call.code(), first.decode() or str(await stream.code())

    # The issued certificates also have the alternative name server.test.
    for names in ((), ("flytepropeller",), ("a", "server.test")):
        assert await calls(*names) == (OK, "1")
    assert (await calls("other"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_renewed_certificates_are_loaded_and_invalid_ones_are_ignored(tmp_path, caplog):
    files = OURS.issue_server(tmp_path)
    async with serving(credentials=build_server_credentials(files)) as served:
        credentials = grpc.ssl_channel_credentials(OURS.pem)
        async with grpc.aio.secure_channel(served.address, credentials) as old:
            assert await served.echo(old) == b"hello"
            files.key.write_text("torn")
            await asyncio.sleep(1.1)
            assert await call_server(served, OURS.pem) == b"hello"
            assert "the previous content stays in use" in caplog.text
            OTHERS.issue("server", files.certificate, files.key)
            await wait_until(lambda: is_answered(call_server(served, OTHERS.pem)))
            assert (await code_of(call_server(served, OURS.pem)))[0] is UNAVAILABLE
            assert await served.echo(old) == b"hello"


def test_unusable_tls_files_are_reported_at_startup(tmp_path: Path) -> None:
    good = OURS.issue_server(tmp_path)
    OTHERS.issue("other", tmp_path / "other.crt", tmp_path / "other.key")
    (tmp_path / "words").write_text("words")
    locked = tmp_path / "locked.key"
    locked.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAc\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    absent, other, words = tmp_path / "absent", tmp_path / "other.key", tmp_path / "words"
    for certificate, key, authority, word in (
        (absent, good.key, None, "absent: No such file or directory"),
        (good.certificate, absent, None, "absent: No such file or directory"),
        (good.certificate, other, None, r"are not a certificate and its key \(KEY_VALUES_MISM"),
        (words, good.key, None, "are not a certificate and its key"),
        (good.certificate, locked, None, "the key without a password"),
        (good.certificate, good.key, words, "contains no CA certificate"),
        (tmp_path, good.key, None, "Is a directory"),
    ):
        with pytest.raises(UnusableCredentials, match=word):
            build_server_credentials(Tls(certificate=certificate, key=key, client_ca=authority))
