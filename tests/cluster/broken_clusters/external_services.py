"""Services outside the cluster that doctor tests break: connectors and S3 stores."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from rig.certificates import ClusterAuthority
from rig.stores import S3

from backend_plugin.connection import Server

if TYPE_CHECKING:
    from broken_clusters.break_case import BreakCase

Around = Callable[["BreakCase"], contextlib.AbstractContextManager[Mapping[str, Any] | None]]


def connector(address: str, *, secured: bool, known: bool = False) -> Around:
    """Start a gRPC server on 127.0.0.1 and direct the doctor to it at `address`.

    Args:
        address: The host in the doctor's options; the port is appended.
        secured: Serve TLS, with a certificate for 127.0.0.1.
        known: Give the doctor the certificate of the authority.
    """

    @contextlib.contextmanager
    def around(on: "BreakCase") -> Iterator[Mapping[str, Any]]:
        authority = ClusterAuthority(on.folder / "authority")
        server = grpc.server(ThreadPoolExecutor(1))
        if secured:
            pair = authority.server("connector", ["127.0.0.1"])
            shown = [(pair.key.read_bytes(), pair.certificate.read_bytes())]
            port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(shown))
        else:
            port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            certificate = str(authority.certificate) if known else ""
            yield {"connector": Server(address=f"{address}:{port}", ca=certificate)}
        finally:
            server.stop(None).wait()

    return around


def s3(bucket: str = "flyte", **environment: str) -> Around:
    """Start an S3 server with an output prefix in `bucket`. `environment` overrides the client settings."""

    @contextlib.contextmanager
    def around(on: "BreakCase") -> Iterator[Mapping[str, Any]]:
        folder = on.folder / "s3"
        folder.mkdir()
        with S3(folder) as store, _environment({**store.environment, **environment}):
            yield {"output_prefixes": [f"s3://{bucket}/metadata"]}

    return around


@contextlib.contextmanager
def _environment(said: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
