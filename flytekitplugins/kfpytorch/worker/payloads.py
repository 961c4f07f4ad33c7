"""Pickle the user's function and its inputs for worker processes."""

import ast
import contextlib
import dataclasses
import inspect
import sys
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import flytekit

from flytekitplugins.kfpytorch.worker import loading, pickling
from flytekitplugins.kfpytorch.worker.loading import ExecutionSettings, Payload
from kfpytorch_common import loaded_modules
from kfpytorch_common.caught import Caught, catch


class NotPicklable(TypeError):
    """The function, or a value that it uses, cannot be pickled for another process."""


def build_payload(task: Any, inputs: dict[str, Any]) -> Payload:
    """Return the function of `task`, its inputs and Flyte settings, which all workers of a run receive."""
    context = flytekit.current_context()
    try:
        checkpoint = context.checkpoint
    except NotImplementedError:  # The context has no checkpoint.
        checkpoint = None
    settings = ExecutionSettings(
        raw_output_prefix=context.raw_output_prefix,
        checkpoint_dest=checkpoint._checkpoint_dest if checkpoint else None,  # noqa: SLF001 - no public API exists.
        checkpoint_src=checkpoint._checkpoint_src if checkpoint else None,  # noqa: SLF001
    )
    return Payload(task.task_function, inputs, settings)


def encode_payload(payload: Payload, task: str) -> bytes:
    """Return the pickled `payload` of the task with the name `task`.

    Raises:
        NotPicklable: A value cannot be pickled; the message names the value.
    """
    pickled = catch(lambda: pickling.dumps(payload))
    if isinstance(pickled, Caught):
        raise NotPicklable(
            f"{task} cannot be sent to its worker processes: "
            f"{_describe_unpicklable(payload)}{pickled.error}. "
            'Make it inside the function, or use start_method="fork"'
        ) from pickled.error
    return pickled


def encode_task(payload: Payload, task: Any) -> bytes:
    """Return the pickled `PickledTask`, from which the workers load the function and its inputs.

    Raises:
        NotPicklable: A value cannot be pickled; the message names the value.
    """
    reference, by_value = find_reference(task), None
    if reference and reference.attribute:
        with contextlib.suppress(Exception):  # The pickle is optional: workers import the function.
            by_value = pickling.dumps(payload.function)
        payload = dataclasses.replace(payload, function=None)
    encoded = encode_payload(payload, task.name)
    return pickling.dumps(loading.PickledTask(payload.settings, reference, encoded, by_value))


def list_warnings(task: Any) -> list[str]:
    """Return warnings about effects of the user's code in this process that worker processes do not have.

    Such effects are changed globals, and calls at the top level of a script.
    """
    return [*filter(None, [_describe_changed_globals(task), _describe_lost_calls(task)])]


def _describe_changed_globals(task: Any) -> str | None:
    """Return a warning about globals that have changed since the task was defined; None if none has changed.

    Ranks import the module of the task again, and therefore use the old values.
    """
    reference = find_reference(task)
    if reference is None or reference.attribute is None:
        return None
    now = loading.read_plain_globals(task.task_function)
    changed = {
        name: (before, now[name])
        for name, before in task.globals_at_definition.items()
        if repr(now.get(name, before)) != repr(before)
    }
    if not changed:
        return None
    listed = ", ".join(f"{name} = {value!r} (was {before!r})" for name, (before, value) in changed.items())
    return (
        f"warning: changed in module {reference.module} since it was imported: {listed}. "
        "Ranks import the module and do not see this; pass it as an input"
    )


def _describe_lost_calls(task: Any) -> str | None:
    """Return a warning about calls such as `torch.manual_seed` in a script that ranks do not import.

    Ranks do not import a script without ``if __name__ == "__main__"``, because the import would run the task
    again.
    """
    file = loaded_modules.list_source_files().get("__main__")
    is_main = getattr(task.task_function, "__module__", None) == "__main__"
    calls = [] if file is None or not is_main or _has_guard(Path(file)) else _list_module_calls(Path(file))
    if file is None or not calls:
        return None
    guard = 'if __name__ == "__main__":'
    return (
        f"warning: {Path(file).name} has no `{guard}`, so ranks do not import it and do not run "
        f"{', '.join(calls)}. Call the task in such a block"
    )


def find_reference(task: Any) -> loading.ImportReference | None:
    """Return a reference to the task in a module that workers can import; None if there is no such module.

    For a task in a notebook, there is no such module.
    """
    function = task.task_function
    codes = loading.list_codes(function)
    names = [getattr(function, "__module__", None), task.instantiated_in]
    if names[0] == "__main__":
        return _find_main_reference(codes)
    for name in dict.fromkeys(names):
        module, file = sys.modules.get(name), loaded_modules.list_source_files().get(name)
        if module is None or file is None:
            continue
        attribute = next((key for key, value in list(vars(module).items()) if value is task), None)
        return loading.ImportReference(name, file, attribute, codes)
    return None


def _find_main_reference(codes: tuple[CodeType, ...]) -> loading.ImportReference | None:
    """Return a reference to the main module; None if it has no block ``if __name__ == "__main__"``.

    Workers import the main module only to run its statements. They load the function from a pickle, because
    the classes that the function and its inputs use belong to `__main__`.
    """
    file = loaded_modules.list_source_files().get("__main__")
    if file is None or not _has_guard(Path(file)):
        return None
    spec = vars(sys.modules["__main__"]).get("__spec__")
    return loading.ImportReference(spec.name if spec else Path(file).stem, file, None, codes)


def _has_guard(file: Path) -> bool:
    tests = [ast.unparse(each.test) for each in _parse(file) if isinstance(each, ast.If)]
    return any("__name__" in test and "__main__" in test for test in tests)


def _parse(file: Path) -> list[ast.stmt]:
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []


def _list_module_calls(file: Path) -> list[str]:
    """Return calls of imported functions at the top level of a script, such as ``torch.seed (line 3)``."""
    statements = _parse(file)
    imports = [each for each in statements if isinstance(each, (ast.Import, ast.ImportFrom))]
    names = {(name.asname or name.name).partition(".")[0] for each in imports for name in each.names} - {
        "sys"
    }
    values = [each.value for each in statements if isinstance(each, ast.Expr)]
    calls = [(call, ast.unparse(call.func)) for call in values if isinstance(call, ast.Call)]
    return [f"{text} (line {call.lineno})" for call, text in calls if text.partition(".")[0] in names]


def _describe_unpicklable(payload: Payload) -> str:
    for where, value in _list_values(payload).items():
        if isinstance(catch(partial(pickling.dumps, value)), Caught):
            return f"{where} is a {type(value).__name__}: "
    return ""


def _list_values(payload: Payload) -> dict[str, Any]:
    values: dict[str, Any] = {f"the input {name!r}": value for name, value in payload.inputs.items()}
    with contextlib.suppress(TypeError, ValueError):  # Not a Python function, or a variable without a value.
        around = inspect.getclosurevars(payload.function)  # type: ignore[arg-type]
        values |= {f"the variable {name!r} around it": value for name, value in around.nonlocals.items()}
        values |= {f"the global {name!r}": value for name, value in around.globals.items()}
    return values
