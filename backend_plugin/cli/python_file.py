"""Loads a task template from a Python file, as ``pyflyte`` would register it.

Only this module of the command line imports flytekit.
"""

import importlib
import json
import os
import re
import sys
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, get_args

from flyteidl.core.literals_pb2 import Literal, LiteralMap
from flyteidl.core.tasks_pb2 import TaskTemplate
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.context_manager import ExecutionState, FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import WorkflowBase
from flytekit.interaction.string_literals import literal_map_string_repr
from flytekit.models import literals
from flytekit.tools.translator import get_serializable

from backend_plugin.cli.command_errors import Misused, UnusableInput
from backend_plugin.cli.task_files import select_task
from kfpytorch_common.caught import Caught, catch

_VERSION: Final = "example"
_CLASS: Final = re.compile(r"<class '([^']*)'>")
"""Matches a class as Python prints it, such as ``<class 'int'>``."""
_STDOUT: Final = 1
_STDERR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTask:
    """A task that was loaded from a Python file. It converts the texts of its inputs to literals."""

    template: TaskTemplate
    task: PythonTask
    root: Path
    """The directory from which the module of the task is imported."""

    def encode_inputs(self, texts: Mapping[str, str]) -> LiteralMap:
        """Return the content of `inputs.pb` from the texts of inputs and the function's defaults.

        Each text is JSON, unless the type of the input is str.

        Raises:
            UnusableInput: If an input has no value, or its text is invalid for its type. The error lists all
                such inputs.
        """
        written, problems = LiteralMap(), []
        for name, typed in self.task.python_interface.inputs_with_defaults.items():
            try:
                written.literals[name].CopyFrom(_encode_input(name, texts.get(name), typed))
            except Misused as problem:
                problems.append(str(problem))
        if problems:
            raise Misused("\n  ".join(problems))
        return written


def read_outputs(written: LiteralMap) -> Mapping[str, object]:
    """Return the outputs in `outputs.pb` as Python values.

    A file, a model or another large object is not loaded: its value is the URI.
    """
    values: Mapping[str, object] = literal_map_string_repr(literals.LiteralMap.from_flyte_idl(written))
    return values


def load_task(path: Path, task: str | None, *, image: str | None) -> LoadedTask:
    """Return a task of a Python file.

    `task` is the full name of the task, the last parts of this name, or the name of the variable with the
    task. It may be None if the file has only one task. `image` is the image of tasks that set none. The
    output of the import goes to stderr.

    Raises:
        UnusableInput: If the file cannot be imported, or has no such task.
    """
    with _redirect_stdout():
        known = vars(_import_file(path))
        named = known.get(task or "")
        if isinstance(named, WorkflowBase):
            raise Misused(f"{path}: {task} is a workflow; name one of its tasks")
        tasks = {each.name: each for each in known.values() if isinstance(each, PythonTask)}
        found = tasks[select_task(tasks, named.name if isinstance(named, PythonTask) else task, path)]
        root, _ = split_module_path(path)
        return LoadedTask(template=_serialize_task(found, image), task=found, root=root)


def _encode_input(name: str, text: str | None, typed: tuple[type, object]) -> Literal:
    value, wanted = _parse_value(name, text, typed), typed[0]
    context = FlyteContextManager.current_context()
    try:
        literal = TypeEngine.to_literal(context, value, wanted, TypeEngine.to_literal_type(wanted))
    except (TypeError, ValueError) as error:
        why = _CLASS.sub(r"\1", str(error))
        raise Misused(f"--input {name}={value if text is None else text}: {why}") from error
    return literal.to_flyte_idl()


def _parse_value(name: str, text: str | None, typed: tuple[type, object]) -> object:
    wanted, default = typed
    if text is None:
        # flytekit also returns None for an input without a default.
        if default is None and type(None) not in get_args(wanted):
            raise Misused(f"input {name} has no value; write --input {name}=VALUE")
        return default
    if wanted is str:
        return text
    try:
        # Numbers, booleans, and lists and mappings of them.
        value = json.loads(text)
    except ValueError as error:
        expected = _CLASS.sub(r"\1", str(wanted))
        raise Misused(f"--input {name}={text}: is not JSON; write a value of type {expected}") from error
    return float(value) if wanted is float and isinstance(value, int) else value


@contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Redirect stdout and its file descriptor, which child processes of an import inherit, to stderr."""
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


def split_module_path(path: Path) -> tuple[Path, list[str]]:
    """Return the first parent directory that is not a package, and the parts of the module name below it."""
    root, parts = path.resolve().parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    return root, parts


def _import_file(path: Path) -> ModuleType:
    """Import the file under the module name that pyflyte would use."""
    root, parts = split_module_path(path)
    # As with pyflyte and its pods, modules in the working directory can be imported too.
    sys.path[:0] = [str(root), str(Path.cwd())]
    try:
        module = importlib.import_module(".".join(parts))
    except (Exception, SystemExit) as error:  # The code of the author can raise any exception.
        raise UnusableInput(f"{path} cannot be imported: {_format_error(error, root)}") from error
    if not path.samefile(module.__file__ or os.devnull):
        raise UnusableInput(
            f"{path}: Python imports another module with the name {module.__name__}; rename the file"
        )
    return module


def _format_error(error: BaseException, root: Path) -> str:
    """Return the error as text, with the file and line where code below `root` raised it, if any."""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and "." not in str(error.name):
        message += "; install it here, or import it inside the task"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(root) and "site-packages" not in Path(frame.filename).parts
    ]
    return f"{message}\n  at {Path(own[-1].filename).relative_to(root)}:{own[-1].lineno}" if own else message


def _serialize_task(task: PythonTask, image: str | None) -> TaskTemplate:
    settings = SerializationSettings(
        project="project", domain="development", version=_VERSION, image_config=_build_image_config(image)
    )
    context = FlyteContextManager.current_context()
    # During an execution flytekit only names the image of an ImageSpec, and does not build it.
    mode = context.new_execution_state().with_params(mode=ExecutionState.Mode.TASK_EXECUTION)
    with FlyteContextManager.with_context(context.with_execution_state(mode)):
        # flytekit and the types of the author can raise any exception.
        spec = catch(lambda: get_serializable(OrderedDict(), settings, task))
    if isinstance(spec, Caught):
        raise UnusableInput(
            f"{task.name} cannot be serialized: {type(spec.error).__name__}: {spec.error}"
        ) from spec.error
    written: TaskTemplate = spec.template.to_flyte_idl()
    return written


def _build_image_config(name: str | None) -> ImageConfig:
    if name is None:
        return ImageConfig.auto_default_image()
    try:
        return ImageConfig(default_image=Image.look_up_image_info("default", name))
    except (AssertionError, ValueError) as error:
        raise UnusableInput(
            f"--image {name}: is not the name of an image; write its name and tag, such as trainer:1"
        ) from error
