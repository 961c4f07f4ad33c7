"""Where a program runs: on this machine as it is, or in the namespaces that another process holds."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PATIENCE: Final = 60


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a program runs, and how its servers are reached from here."""

    address: str = "127.0.0.1"
    """At which we reach what listens there."""
    listen: str = "127.0.0.1"
    """Where it has to listen for that."""
    holder: int = 0
    """Whose namespaces they are; 0: ours."""

    @property
    def is_apart(self) -> bool:
        """Whether a program there is the child of the one that brought it there."""
        return self.holder != 0

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """What to start so that this runs there."""
        said = [str(word) for word in words]
        if not self.is_apart:
            return said
        nsenter = shutil.which("nsenter")
        assert nsenter is not None, "nsenter is not on the PATH"
        return [nsenter, f"--target={self.holder}", "--mount", "--net", "--pid", "--", *said]

    def run(self, *words: str | Path) -> str:
        """Run a short command to its end; what it printed. Raises if it fails."""
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
