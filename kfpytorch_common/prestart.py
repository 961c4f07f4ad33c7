"""Load torch under `pyflyte run` while flytekit and the user's module are still loading.

flytekit imports this module with its other plugins, before it reads the script. On Linux, if the
command line runs a local script that mentions kfpytorch, a fork of this process loads torch in parallel.
The fork contains flytekit and no user module. In other processes, this module only checks `sys.argv`.
``FLYTE_KFPYTORCH_PRESTART=0`` disables the early start.
"""

import ast
import contextlib
import gc
import importlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kfpytorch_common.forkserver.launch import ForkServer

PRELOAD: Final = (
    "torch",
    "torch.distributed.elastic.agent.server.api",
    "torch.distributed.launcher.api",
    "flytekit.bin.entrypoint",
    "cloudpickle",
    "flytekitplugins.kfpytorch.worker.replica",
)

_DATA_PARALLEL: Final = (b"DistributedDataParallel", b"FullyShardedDataParallel", b"fully_shard")
# A call of one of `_DATA_PARALLEL` imports this module, which takes a second in every worker.
_COMPILER: Final = "torch._dynamo"
_MOST_FILES: Final = 100
_ENVIRONMENT: Final = frozenset({"environ", "putenv", "load_dotenv"})

_server: "ForkServer | None" = None


def get_server() -> "ForkServer":
    """Return a fork server that has loaded torch and flytekit and no module of the user.

    Usually, this is the server that this module started at its import, or the server of an earlier run. A new
    server replaces it if an environment variable that only a new interpreter reads has changed.
    """
    from kfpytorch_common.forkserver.launch import start_fresh_server

    global _server  # noqa: PLW0603 - one server for the process makes later launches fast.
    if _server is not None and not _server.is_suitable(os.environ):
        _server.stop()
        _server = None
    if _server is None:
        _server = start_fresh_server(PRELOAD)
    return _server


def start() -> None:
    """Do nothing, because flytekit's entry point needs a function: the import starts the fork server."""


def find_script(argv: Sequence[str]) -> Path | None:
    """Return the script if `argv` is ``pyflyte run SCRIPT …`` for a local run; None for other commands."""
    if not argv or Path(argv[0]).name != "pyflyte" or "run" not in argv:
        return None
    words = argv[argv.index("run") + 1 :]
    options = [*itertools.takewhile(lambda word: not word.endswith(".py"), words)]
    place = len(options)
    # Without the name of a task, the command only lists the tasks of the script.
    if not words[place + 1 :] or "--help" in words or {"-r", "--remote"}.intersection(options):
        return None
    return Path(words[place])


class ScriptImports(NamedTuple):
    """Flags for a script: whether it imports torch at its top level, and whether it needs torch's compiler.

    Both flags are derived from the text of the script, without running it.
    """

    compiler: bool = False
    """True if the script, or a module in its directory, names a class like `DistributedDataParallel`."""
    torch_at_top: bool = False


class _SourceFile(NamedTuple):
    text: bytes
    imports: list[tuple[str, bool]]
    """Pairs of an imported name and a flag: True if the import runs while the script loads.

    The flag is False for an import after a statement that may change environment variables. torch must not be
    imported before such a change.
    """
    changes_environment: bool
    """True if the file may change environment variables while the script loads."""


def read_script_imports(script: Path) -> ScriptImports:
    """Return flags for the imports of a script and of the modules in its directory that it imports."""
    files = [*itertools.islice(_iter_files(script), _MOST_FILES)]
    # The texts do not show in which order a script and its modules change the environment.
    changes_environment = any(file.changes_environment for file in files[1:])
    at_top = {name.partition(".")[0] for file in files for name, at_once in file.imports if at_once}
    return ScriptImports(
        compiler=any(name in file.text for file in files for name in _DATA_PARALLEL),
        torch_at_top=not changes_environment and "torch" in at_top,
    )


def _iter_files(script: Path) -> Iterator[_SourceFile]:
    waiting, seen = [(script, True)], {script}
    while waiting:
        file = _read_file(*waiting.pop())
        yield file
        for name, at_once in file.imports:
            beside = script.parent.joinpath(*name.split("."))
            for path in (beside.with_suffix(".py"), beside / "__init__.py"):
                if path not in seen and path.is_file():
                    seen.add(path)
                    waiting.append((path, at_once))


def _read_file(path: Path, at_once: bool) -> _SourceFile:  # noqa: FBT001 - the item of a list.
    text = path.read_bytes()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _SourceFile(text, [], changes_environment=False)  # Loading the file raises the error.
    change = next((number for number, node in enumerate(tree.body) if _can_change_environment(node)), None)
    at_top = {id(node) for node in tree.body[:change]} if at_once else set()
    imports = [(name, id(node) in at_top) for node in ast.walk(tree) for name in _list_names(node)]
    return _SourceFile(text, imports, changes_environment=at_once and change is not None)


def _list_names(node: ast.AST) -> list[str]:
    """Return the absolute names that a statement may import: ``a`` and ``a.b`` for ``from a import b``."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}", *(f"{node.module}.{each.name}" for each in node.names)]
    return []


def _can_change_environment(node: ast.stmt) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
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
    from kfpytorch_common.forkserver.launch import start_forked_server

    # While torch's native code loads, it drops an exception of a signal handler, and Ctrl-C would be lost.
    with defer_signals(signal.SIGINT, signal.SIGTERM) as signals:
        if needs.torch_at_top:
            # The script imports torch in this process anyway. An earlier import serves the fork too.
            gc.disable()  # The collector would repeatedly scan all new objects.
            with contextlib.suppress(Exception):  # The script's own import of torch raises the error.
                importlib.import_module("torch")
            gc.freeze()
            gc.enable()
        server = start_forked_server((*PRELOAD, _COMPILER) if needs.compiler else PRELOAD)
        signals.deliver()
    return server


_needs = _decide_prestart()
if _needs is not None:
    _server = _start_server(_needs)
