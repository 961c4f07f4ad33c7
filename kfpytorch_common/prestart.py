"""Load torch under `pyflyte run` while flytekit and the user's module are still loading.

flytekit imports this module with its other plugins, before it reads the script. If the command line runs a
local script that mentions kfpytorch, a fork of this process loads torch in parallel. The fork contains
flytekit and no user module. In other processes, the cost is a check of `sys.argv`.
``FLYTE_KFPYTORCH_PRESTART=0`` disables the early start.
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
    from kfpytorch_common.forkserver.client import ForkServer

PRELOAD: Final = (
    "torch",
    "torch.distributed.elastic.agent.server.api",
    "torch.distributed.launcher.api",
    "flytekit.bin.entrypoint",
    "cloudpickle",
    "flytekitplugins.kfpytorch.worker.replica",
)
"""The modules that every worker needs, without the user's."""

_DATA_PARALLEL: Final = (b"DistributedDataParallel", b"FullyShardedDataParallel", b"fully_shard")
# The constructors of these classes import it with its dependencies, which takes a second in every worker.
_COMPILER: Final = "torch._dynamo"
_MOST_FILES: Final = 100
_ENVIRONMENT: Final = frozenset({"environ", "putenv", "load_dotenv"})

_started: "ForkServer | None" = None


def claim_server() -> "ForkServer | None":
    """Return the server that was started early, if any, and give up ownership of it."""
    global _started
    server, _started = _started, None
    return server


def start() -> None:
    """Do nothing; the entry point requires a function, and importing the module does the work."""


def find_script(argv: Sequence[str]) -> Path | None:
    """Return the script that ``pyflyte run SCRIPT …`` runs on this machine, or None."""
    if not argv or Path(argv[0]).name != "pyflyte" or "run" not in argv:
        return None
    words = argv[argv.index("run") + 1 :]
    for place, word in enumerate(words):
        if word in {"-r", "--remote", "--help"}:
            return None
        if word.endswith(".py"):
            # Without the name of a task, the command only lists the tasks of the script.
            return Path(word) if words[place + 1 :] and "--help" not in words else None
    return None


class ScriptImports(NamedTuple):
    """Imports of a script, derived from its text."""

    compiler: bool = False
    """True if the script, or an imported module next to it, names a class like `DistributedDataParallel`."""
    torch_at_top: bool = False
    """True if loading the script imports torch."""


def read_script_imports(script: Path) -> ScriptImports:
    """Read a script, and the modules next to it that it imports."""
    compiler = torch_at_top = changes_environment = False
    waiting, seen = [(script, True)], {script}
    while waiting:
        file, loaded_at_once = waiting.pop()
        text = file.read_bytes()
        compiler = compiler or any(name in text for name in _DATA_PARALLEL)
        imports, changes = _parse_imports(text)
        # The texts do not show in which order a script and its modules change the environment.
        changes_environment = changes_environment or (changes and loaded_at_once and file != script)
        for name, at_top in imports:
            at_once = loaded_at_once and at_top
            torch_at_top = torch_at_top or (at_once and name.partition(".")[0] == "torch")
            beside = script.parent.joinpath(*name.split("."))
            for path in (beside.with_suffix(".py"), beside / "__init__.py"):
                if path not in seen and len(seen) < _MOST_FILES and path.is_file():
                    seen.add(path)
                    waiting.append((path, at_once))
    return ScriptImports(compiler, torch_at_top and not changes_environment)


def _parse_imports(text: bytes) -> tuple[list[tuple[str, bool]], bool]:
    """Return the imports of a file and whether it changes the environment.

    Each import has a flag: True if loading the file runs it. The flag is False after a statement that may
    change the environment, because the import must see the change.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return [], False  # Loading the file raises the error.
    change = next((number for number, node in enumerate(tree.body) if _can_change_environment(node)), None)
    return list(_iter_imports(tree, {id(node) for node in tree.body[:change]})), change is not None


def _iter_imports(tree: ast.Module, at_top: set[int]) -> Iterator[tuple[str, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, id(node) in at_top) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, id(node) in at_top
            yield from ((f"{node.module}.{each.name}", id(node) in at_top) for each in node.names)


def _can_change_environment(node: ast.stmt) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return False
    parts = ast.walk(node)
    return any(getattr(part, "attr", getattr(part, "id", None)) in _ENVIRONMENT for part in parts)


def _decide_prestart() -> ScriptImports | None:
    if os.environ.get("FLYTE_KFPYTORCH_PRESTART") == "0" or sys.platform != "linux":
        return None
    script = find_script(sys.argv)
    if script is None or threading.active_count() > 1:
        return None
    try:
        return read_script_imports(script) if b"kfpytorch" in script.read_bytes() else None
    except OSError:
        return None


def _start_server(needs: ScriptImports) -> "ForkServer":
    from kfpytorch_common.deferred_signals import defer_signals
    from kfpytorch_common.forkserver.client import start_forked_server

    # While torch's native code loads, it drops an exception of a signal handler, and Ctrl-C would be lost.
    with defer_signals(signal.SIGINT, signal.SIGTERM) as signals:
        if needs.torch_at_top:
            # This process imports torch anyway; the fork then gets it at no cost.
            gc.disable()  # The collector would repeatedly scan all new objects.
            with contextlib.suppress(Exception):  # The import that needs it raises the error.
                importlib.import_module("torch")
            gc.freeze()
            gc.enable()
        server = start_forked_server((*PRELOAD, _COMPILER) if needs.compiler else PRELOAD)
        signals.deliver()
    return server


_needs = _decide_prestart()
if _needs is not None:
    _started = _start_server(_needs)
