"""Under `pyflyte run`, load torch while flytekit and the user's module are still loading.

flytekit imports this module with its other plugins, before it looks at the file to run. When the
command line says that a script which names kfpytorch is about to run on this machine, a fork of
this process, which has flytekit and no user's module, loads torch meanwhile. In every other process
this costs one look at `sys.argv`. ``FLYTE_KFPYTORCH_PRESTART=0`` switches it off.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kfpytorch_common.forkserver.client import Server

PRELOAD: Final = (
    "torch",
    "torch.distributed.elastic.agent.server.api",
    "torch.distributed.launcher.api",
    "flytekit.bin.entrypoint",
    "cloudpickle",
)
"""What every worker needs and no user wrote."""

_DATA_PARALLEL: Final = (b"DistributedDataParallel", b"FullyShardedDataParallel", b"fully_shard")
# Their constructors import it, and all that it needs: a second in every worker.
_COMPILER: Final = "torch._dynamo"
_MOST_FILES: Final = 100

_started: "Server | None" = None


def take() -> "Server | None":
    """The server that was started ahead of time, if any; it is the caller's from now on."""
    global _started
    server, _started = _started, None
    return server


def start() -> None:
    """Only here for the entry point to name; importing the module does the work."""


def script_of(argv: Sequence[str]) -> Path | None:
    """The script that ``pyflyte run SCRIPT …`` is about to run on this machine."""
    if not argv or Path(argv[0]).name != "pyflyte" or "run" not in argv:
        return None
    words = argv[argv.index("run") + 1 :]
    for place, word in enumerate(words):
        if word in {"-r", "--remote", "--help"}:
            return None
        if word.endswith(".py"):
            # Without a task's name the command only lists what the file holds.
            return Path(word) if words[place + 1 :] and "--help" not in words else None
    return None


def preload_for(script: Path) -> tuple[str, ...]:
    """What to load for a script: more if it, or a module beside it, wraps a model."""
    for path in sorted(script.parent.glob("*.py"))[:_MOST_FILES]:
        text = path.read_bytes()
        if any(name in text for name in _DATA_PARALLEL):
            return (*PRELOAD, _COMPILER)
    return PRELOAD


def _wanted() -> tuple[str, ...] | None:
    if os.environ.get("FLYTE_KFPYTORCH_PRESTART") == "0" or sys.platform != "linux":
        return None
    script = script_of(sys.argv)
    if script is None or threading.active_count() > 1:
        return None
    try:
        return preload_for(script) if b"kfpytorch" in script.read_bytes() else None
    except OSError:
        return None


_preload = _wanted()
if _preload:
    from kfpytorch_common.forkserver.client import start_forked

    _started = start_forked(_preload)
