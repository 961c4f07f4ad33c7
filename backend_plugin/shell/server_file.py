"""The file ``server.json`` in the state directory, by which commands find a running server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.shell import bounded_read

STATE: Final = "KFPYTORCH_STATE_DIR"
"""The environment variable that names the state directory."""

_FILE: Final = "server.json"


class ServerFileError(BackendError):
    """The file ``server.json``, by which commands find a running server, cannot be written."""


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The address and credentials of a server."""

    endpoint: str
    """Host and port, such as ``127.0.0.1:8000``."""
    token: str = ""
    """The token; empty if the server requires no token, or if `token_file` is set."""
    token_file: str = ""
    """A file with the token, if another program writes and rotates it."""
    roots: str = ""
    """A file of CA certificates that verify the server's certificate; empty for the CAs of the system."""
    pid: int = 0
    """The process ID of the server on this machine; 0 if the server runs on another machine."""


def get_state_directory(environ: Mapping[str, str]) -> Path:
    """Return the default state directory of this user's server; `KFPYTORCH_STATE_DIR` overrides it."""
    configured = environ.get(STATE)
    if configured:
        return Path(configured)
    home = environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kfpytorch"


def get_path(state: Path) -> Path:
    """Return the path of the server file ``server.json`` in the state directory `state`."""
    return state / _FILE


def write(state: Path, server: ServerInfo) -> None:
    """Write ``server.json`` atomically, readable by this user only, so that commands find the server.

    Raises:
        ServerFileError: If the file cannot be written.
    """
    new = state / f"{_FILE}.new"
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(msgspec.json.encode(server) + b"\n")
        new.replace(get_path(state))
    except OSError as error:
        raise ServerFileError(
            f"{get_path(state)}: cannot be written ({error.strerror}), so commands would not find this "
            "server; check that it is a file, that this user may write it, and that the disk has space"
        ) from error


def delete_if_own(state: Path, server: ServerInfo) -> None:
    """Delete the file ``server.json`` of `server`, unless another server has overwritten it."""
    if read(state) == server:
        get_path(state).unlink(missing_ok=True)


def read(state: Path) -> ServerInfo | None:
    """Return the server that uses the directory `state`; None if ``server.json`` is missing or invalid."""
    try:
        return msgspec.json.decode(bounded_read.read_file(get_path(state)), type=ServerInfo)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_alive(server: ServerInfo) -> bool:
    """True if the server's process exists, or if that cannot be determined."""
    try:
        if server.pid > 0:
            os.kill(server.pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
