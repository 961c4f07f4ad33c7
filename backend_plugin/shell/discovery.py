"""Where a running server says how it is reached, and where commands look for it.

Lives here: one small file in the state directory. Does not: how a server is spoken to.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.shell import small_files

STATE: Final = "KFPYTORCH_STATE"
"""The variable that names the state directory."""

_FILE: Final = "server.json"


class CannotSay(BackendError):
    """Nobody could be told how the server is reached."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached."""

    endpoint: str
    """``127.0.0.1:8000``"""
    token: str = ""
    """Empty where it wants none, or another file has it."""
    token_file: str = ""
    """The file that has it, where somebody else writes it, and writes it anew."""
    roots: str = ""
    """A file of certificates by which a server with TLS is known; empty for those of the system."""
    pid: int = 0
    """Its process on this machine; 0 where that means nothing."""


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where a server of this user keeps its state, unless it is told otherwise."""
    said = environ.get(STATE)
    if said:
        return Path(said)
    home = environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kfpytorch"


def file(state: Path) -> Path:
    """The file in which it is said."""
    return state / _FILE


def write(state: Path, server: Server) -> None:
    """Say how this server is reached, to its own user only; whole or not at all.

    Raises:
        CannotSay: If it cannot be written.
    """
    new = state / f"{_FILE}.new"
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(msgspec.json.encode(server) + b"\n")
        new.replace(file(state))
    except OSError as error:
        raise CannotSay(
            f"{file(state)}: cannot be written ({error.strerror}), and no command would find this server; "
            "see that it is a file, that this user may write there, and that the disk has room"
        ) from error


def withdraw(state: Path, server: Server) -> None:
    """Say so no longer; what another server has said meanwhile stays."""
    if read(state) == server:
        file(state).unlink(missing_ok=True)


def read(state: Path) -> Server | None:
    """What a server has said there; None where there is nothing that can be read."""
    try:
        return msgspec.json.decode(small_files.read(file(state)), type=Server)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_alive(server: Server) -> bool:
    """Whether its process is there, as far as that can be told."""
    if server.pid <= 0:
        return True
    try:
        os.kill(server.pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
