"""The Unix sockets through which local runs report the lines of code that their ranks execute."""

import os
import socket
import tempfile
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "positions.sock"
# The directories that contain the directories of runs.
_PLACES: Final = ("/dev/shm", tempfile.gettempdir())  # noqa: S108 - only files of the user are opened.


def list_sockets() -> list[Path]:
    """Return the paths of the sockets of this user's local runs. Sockets of killed runs may be included."""
    found = {path for place in _PLACES for path in Path(place).glob(f"kfpytorch-*/{SOCKET_NAME}")}
    return sorted(path for path in found if _is_own(path))


def request_positions(path: Path, timeout: float) -> str | None:
    """Return the lines of code that the ranks of a run execute, as text; None if the run does not reply.

    `path` is the socket of the run. Wait at most `timeout` seconds for each piece of the reply.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        parts: list[bytes] = []
        try:
            client.connect(str(path))
            while part := client.recv(1 << 16):
                parts.append(part)
        except OSError:
            return None
    return b"".join(parts).decode(errors="replace") or None


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == path.parent.lstat().st_uid == os.getuid()
    except OSError:  # The run has just ended.
        return False
