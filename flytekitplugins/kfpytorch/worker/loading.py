"""Load the user's function in a worker, from its module or from a pickle, and enter its Flyte context.

The calling process names the module and the task in an `ImportReference`. A worker imports the module, which
runs its statements, and uses the function of that task. The worker uses the pickled function if the module
has no such task, or if the code of the function has changed since the calling process loaded the module.
"""

import contextlib
import importlib
import inspect
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.data_persistence import FileAccessProvider

from kfpytorch_common import loaded_modules

_PLAIN: Final = frozenset({bool, int, float, str, bytes, type(None)})


class CalledAtImport(RuntimeError):
    """A module calls a distributed task while a worker imports the module."""


class ModuleChanged(RuntimeError):
    """A task's module has changed since the calling process loaded it, and the function cannot be pickled."""


@dataclass(frozen=True)
class ImportReference:
    """A module of the user that workers import, and the name of the task in the module."""

    module: str
    file: str
    """The source file of the module. A module with the same name from another file is not used."""
    attribute: str | None
    """The name of the task in the module; None if only the statements of the module are needed."""
    codes: tuple[CodeType, ...]


@dataclass(frozen=True)
class ExecutionSettings:
    """The URLs of the outputs and of the checkpoints of a Flyte execution."""

    raw_output_prefix: str
    checkpoint_dest: str | None
    checkpoint_src: str | None


@dataclass(frozen=True)
class Payload:
    """The user's function, its inputs and its Flyte context. All workers of a run get the same payload."""

    function: Callable[..., Any] | None
    inputs: Mapping[str, Any]
    settings: ExecutionSettings


@dataclass(frozen=True)
class PickledTask:
    """The content of the file from which a worker loads its function and inputs."""

    settings: ExecutionSettings
    reference: ImportReference | None
    payload: bytes
    """The pickled `Payload`, without the function if workers can import the function through `reference`."""
    function: bytes | None
    """The pickled function, if `payload` does not contain it and if it can be pickled; otherwise None."""


def list_codes(function: Any) -> tuple[CodeType, ...]:
    """Return the code objects of a function and of each function that it wraps."""
    codes = [getattr(each, "__code__", None) for each in _list_wrapped(function)]
    return tuple(code for code in codes if type(code) is CodeType)


def read_plain_globals(function: Any) -> dict[str, Any]:
    """Return the global variables of simple types that a function, or a function that it wraps, reads.

    Simple types are bool, int, float, str, bytes and None.
    """
    values: dict[str, Any] = {}
    for each in _list_wrapped(function):
        namespace = getattr(each, "__globals__", {})
        for code in list_codes(each)[:1]:
            names = {name for each in iter_codes(code) for name in each.co_names}
            named = {name: namespace[name] for name in names if name in namespace}
            values |= {name: value for name, value in named.items() if type(value) in _PLAIN}
    return values


def _list_wrapped(function: Any) -> list[Any]:
    functions: list[Any] = []
    innermost = inspect.unwrap(function, stop=functions.append)  # It passes each outer function to `stop`.
    return [*functions, innermost]


def iter_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code object `code`, and those of the functions that are defined in it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from iter_codes(constant)


def load_function(pickled: PickledTask) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """Return the function of a task and its inputs.

    The function comes from the module of the task, or if that is not possible, from a pickle in `pickled`.

    Raises:
        ModuleChanged: The function is neither in the module nor in `pickled`.
        Exception: The module, or an object in the pickle, raised this exception while it was loaded.
    """
    function = _import_function(pickled.reference) if pickled.reference else None
    with _track_import():
        payload = pickle.loads(pickled.payload)  # noqa: S301 - written by our caller.
        function = function or payload.function
        if function is None and pickled.function is not None:
            function = pickle.loads(pickled.function)  # noqa: S301
    if function is None:
        assert pickled.reference is not None  # noqa: S101 - without a reference the payload has the function.
        raise ModuleChanged(
            f"{pickled.reference.file} has changed since the run began, or its task "
            f"{pickled.reference.attribute!r} runs when it is imported; start the run again"
        )
    return function, payload.inputs


def require_not_importing(task: str) -> None:
    """Raise an error if a worker calls the distributed task with the name `task` while it imports a module.

    Raises:
        CalledAtImport: The call would start workers that import the module again, and so on without end.
    """
    if _state.imports:
        _state.refused = True
        raise CalledAtImport(
            f"{task} is called while a worker imports its module: "
            'put the call under `if __name__ == "__main__":`'
        )


@dataclass
class _ImportState:
    imports: int = 0
    refused: bool = False


_state = _ImportState()


@contextlib.contextmanager
def _track_import() -> Iterator[None]:
    _state.imports += 1
    try:
        yield
    finally:
        _state.imports -= 1


def _import_function(reference: ImportReference) -> Callable[..., Any] | None:
    """Import the module and return the function of the task.

    Return None if the worker has to use the pickled function instead: if the import failed and the error is
    not raised, if the module is from another file, or if it has no task of this name with the same code.
    """
    try:
        with _track_import():
            module = importlib.import_module(reference.module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise any exception.
        # It is no error if the module itself, or a package that contains it, is not on the path.
        if type(error) is not ModuleNotFoundError or not f"{reference.module}.".startswith(f"{error.name}."):
            _report_or_raise(reference, error)
        return None
    file = loaded_modules.list_source_files().get(reference.module)
    is_same = file is not None and os.path.realpath(file) == os.path.realpath(reference.file)
    if reference.attribute is None or not is_same:
        return None
    function = getattr(vars(module).get(reference.attribute), "task_function", None)
    return function if list_codes(function) == reference.codes else None


def _report_or_raise(reference: ImportReference, error: BaseException) -> None:
    """Raise or print `error`, with which the import of the module failed in this worker.

    Raise the error if a pod that runs the task would fail with it, too. A pod would not fail in two cases.
    Either the pod does not import the module (`reference.attribute` is None). Or the module calls the task
    while it is imported, which is an error only in a worker. In these cases, print the error; the worker then
    uses the pickled function.
    """
    if reference.attribute is not None and not _state.refused:
        raise error
    print(  # noqa: T201 - for the log of the rank.
        f"kfpytorch: {reference.module} could not be imported in this rank, its function was sent by value: "
        f"{type(error).__name__}",
        file=sys.stderr,
    )


@contextlib.contextmanager
def enter_execution(settings: ExecutionSettings, workspace: str | None) -> Iterator[None]:
    """Enter a new Flyte context, as in a pod, with the output prefix and checkpoints of `settings`.

    flytekit writes its local files to `workspace`, or to its default directory if `workspace` is None.
    """
    from flytekit.bin.entrypoint import setup_execution

    with contextlib.ExitStack() as context:
        if workspace:
            access = FileAccessProvider(
                local_sandbox_dir=workspace, raw_output_prefix=settings.raw_output_prefix
            )
            changed = FlyteContextManager.current_context().with_file_access(access)
            context.enter_context(FlyteContextManager.with_context(changed))
        execution = setup_execution(
            raw_output_data_prefix=settings.raw_output_prefix,
            checkpoint_path=settings.checkpoint_dest,
            prev_checkpoint=settings.checkpoint_src,
        )
        before = tempfile.tempdir
        tempfile.tempdir = workspace or before
        try:
            context.enter_context(execution)
        finally:
            tempfile.tempdir = before
        yield


@contextlib.contextmanager
def set_working_directory(workspace: str) -> Iterator[None]:
    """Within the `with` block, use a new directory in `workspace` as Flyte's working directory.

    The directory replaces that of the Flyte context that this worker has inherited from its caller.
    """
    context = FlyteContextManager.current_context()
    parameters = context.user_space_params.builder()
    parameters.working_dir = tempfile.mkdtemp(prefix="rank-", dir=workspace)
    state = context.execution_state.with_params(user_space_params=parameters.build())
    with FlyteContextManager.with_context(context.with_execution_state(state)):
        yield
