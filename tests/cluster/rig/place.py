"""The place where a program runs: this machine, or the namespaces that another process holds."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

_PATIENCE: Final = 60


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place for programs, with the addresses of their servers."""

    address: str = "127.0.0.1"
    """The address at which this process reaches servers in the place."""
    listen: str = "127.0.0.1"
    """The address that servers must listen on to be reachable."""
    holder: int = 0
    """The id of the process that holds the namespaces; 0 for those of this process."""

    @property
    def is_apart(self) -> bool:
        """True if the program runs in other namespaces, as a child of nsenter."""
        return self.holder != 0

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """Return the command that runs this one in the place."""
        command = [str(word) for word in words]
        if not self.is_apart:
            return command
        nsenter = shutil.which("nsenter")
        assert nsenter is not None, "nsenter is not on the PATH"
        return [nsenter, f"--target={self.holder}", "--mount", "--net", "--pid", "--", *command]

    def is_ready(self, port: int, path: str = "readyz") -> bool:
        """Return True if the server at this port of the place reports at this path that it is ready."""
        try:
            return httpx.get(f"http://{self.address}:{port}/{path}").is_success
        except httpx.HTTPError:
            return False

    def run(self, *words: str | Path) -> str:
        """Run a short command and return its standard output. Fails the test if the command fails."""
        ended = subprocess.run(
            self.command(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert ended.returncode == 0, f"{' '.join(map(str, words))}: {ended.stdout}{ended.stderr}"
        return ended.stdout


LOOPBACK: Final = Place()
