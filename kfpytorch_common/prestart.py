"""Under `pyflyte run`, load torch while flytekit and the user's module are still loading.

flytekit imports this module with its other plugins, before it looks at the file to run. When the
command line says that a script which names kfpytorch is about to run on this machine, a fork of
this process, which has flytekit and no user's module, loads torch meanwhile. In every other process
this costs one look at `sys.argv`. ``FLYTE_KFPYTORCH_PRESTART=0`` switches it off.
"""

import ast
import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kfpytorch_common.forkserver.client import Server

PRELOAD: Final = (
    "torch",
    "torch.distributed.elastic.agent.server.api",
    "torch.distributed.launcher.api",
    "flytekit.bin.entrypoint",
    "cloudpickle",
    "flytekitplugins.kfpytorch.worker.replica",
)
"""What every worker needs and no user wrote."""

_DATA_PARALLEL: Final = (b"DistributedDataParallel", b"FullyShardedDataParallel", b"fully_shard")
# Their constructors import it, and all that it needs: a second in every worker.
_COMPILER: Final = "torch._dynamo"
_MOST_FILES: Final = 100
_ENVIRONMENT: Final = frozenset({"environ", "putenv", "load_dotenv"})

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


class Needs(NamedTuple):
    """What a script will import, as far as its text says."""

    compiler: bool = False
    """It, or a module beside it that it imports, wraps a model for several ranks."""
    torch_at_top: bool = False
    """Whoever loads the script imports torch."""


def needs_of(script: Path) -> Needs:
    """Look into a script and the modules beside it that it imports."""
    compiler = torch_at_top = changes_environment = False
    waiting, seen = [(script, True)], {script}
    while waiting:
        file, loaded_at_once = waiting.pop()
        text = file.read_bytes()
        compiler = compiler or any(name in text for name in _DATA_PARALLEL)
        imports, changes = _read(text)
        # In which order a script and its modules come to it is more than their texts say.
        changes_environment = changes_environment or (changes and loaded_at_once and file != script)
        for name, at_top in imports:
            at_once = loaded_at_once and at_top
            torch_at_top = torch_at_top or (at_once and name.partition(".")[0] == "torch")
            beside = script.parent.joinpath(*name.split("."))
            for path in (beside.with_suffix(".py"), beside / "__init__.py"):
                if path not in seen and len(seen) < _MOST_FILES and path.is_file():
                    seen.add(path)
                    waiting.append((path, at_once))
    return Needs(compiler, torch_at_top and not changes_environment)


def _read(text: bytes) -> tuple[list[tuple[str, bool]], bool]:
    """The imports of a file, each with whether loading it runs them, and whether it touches the environment.

    Imports after a statement that may do so do not count as of the load: they must see what it did.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return [], False  # Whoever loads the file will say so.
    change = next((number for number, node in enumerate(tree.body) if _touches_environment(node)), None)
    return list(_imports(tree, {id(node) for node in tree.body[:change]})), change is not None


def _imports(tree: ast.Module, at_top: set[int]) -> Iterator[tuple[str, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, id(node) in at_top) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, id(node) in at_top
            yield from ((f"{node.module}.{each.name}", id(node) in at_top) for each in node.names)


def _touches_environment(node: ast.stmt) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return False
    parts = ast.walk(node)
    return any(getattr(part, "attr", getattr(part, "id", None)) in _ENVIRONMENT for part in parts)


def _wanted() -> Needs | None:
    if os.environ.get("FLYTE_KFPYTORCH_PRESTART") == "0" or sys.platform != "linux":
        return None
    script = script_of(sys.argv)
    if script is None or threading.active_count() > 1:
        return None
    try:
        return needs_of(script) if b"kfpytorch" in script.read_bytes() else None
    except OSError:
        return None


def _start(needs: Needs) -> "Server":
    from kfpytorch_common.forkserver.client import start_forked
    from kfpytorch_common.held_signals import held

    # While it loads, torch's native code drops what a signal's handler raises: the Ctrl-C would be lost.
    with held(signal.SIGINT, signal.SIGTERM) as signals:
        if needs.torch_at_top:
            # This process is about to import it anyway; the fork gets it for nothing.
            gc.disable()  # The collector would walk all that is new, again and again.
            with contextlib.suppress(Exception):  # Whoever needs it will say why.
                importlib.import_module("torch")
            gc.freeze()
            gc.enable()
        server = start_forked((*PRELOAD, _COMPILER) if needs.compiler else PRELOAD)
        signals.deliver()
    return server


_needs = _wanted()
if _needs is not None:
    _started = _start(_needs)
