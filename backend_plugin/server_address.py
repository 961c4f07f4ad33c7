"""The address of a server, the credentials of its caller, and the environment variables that set them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

TLS: Final = "grpcs://"
"""The URL scheme of a server address that requires TLS."""
SERVER: Final = "KFPYTORCH_SERVER"
"""The environment variable with the server's address: ``HOST:PORT``, or ``grpcs://HOST:PORT`` for TLS."""
TOKEN: Final = "KFPYTORCH_TOKEN"  # noqa: S105 - a variable's name.
"""The environment variable with the access token of the server."""
FILES: Final[Mapping[str, str]] = {
    "ca": "KFPYTORCH_CA",
    "cert": "KFPYTORCH_CERT",
    "key": "KFPYTORCH_KEY",
    "tls_server_name": "KFPYTORCH_TLS_SERVER_NAME",
}
"""The environment variable of each field of `Server` that configures TLS, by the name of the field."""

START_HINT: Final = "start one: kfpytorch serve --cluster embedded"
"""The part of error messages that shows how to start a server if none runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server to call, and the credentials of the caller. Environment variables set the defaults."""

    address: str | None = None
    """``HOST:PORT``, ``grpcs://HOST:PORT`` for TLS, or the state directory of a local server."""
    token: str = ""
    ca: str = ""
    """A PEM file with the CA of the server's certificate; empty for the CAs of the system."""
    cert: str = ""
    """A PEM file with the certificate of the caller, for a server that requires one."""
    key: str = ""
    """A PEM file with the key of `cert`."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it differs from the address."""


Address: TypeAlias = Server | str | None
"""A server, its address, or None for the default server."""


def split_address(address: str) -> tuple[str, int] | None:
    """Return the host and port of ``HOST:PORT`` or ``grpcs://HOST:PORT``; None if either is invalid."""
    host, _, port = address.removeprefix(TLS).rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 65_536):
        return None
    return host.strip("[]"), int(port)


def is_address(text: str) -> bool:
    """True if the text is a host and port, a path, or another address of gRPC, such as ``unix:///``."""
    return Path(text).is_dir() or "/" in text.removeprefix(TLS) or split_address(text) is not None
