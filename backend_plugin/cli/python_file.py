"""A Python file with tasks → the template of one of them, as ``pyflyte`` would register it.

The only module of the backend that loads flytekit.
"""

import importlib
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from flyteidl.core.tasks_pb2 import TaskTemplate
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.context_manager import ExecutionState, FlyteContextManager
from flytekit.tools.translator import get_serializable

from backend_plugin.cli.sources import Unreadable, chosen

_VERSION: Final = "example"


def template(path: Path, task: str | None, *, image: str | None) -> TaskTemplate:
    """The task of that name in the file, serialized with nothing that differs from run to run.

    Raises:
        Unreadable: If the file cannot be imported, or has no such task.
    """
    tasks = {
        each.name: lambda each=each: _serialized(each, image)
        for each in vars(_imported(path)).values()
        if isinstance(each, PythonTask)
    }
    return chosen(tasks, task, str(path))()


def _imported(path: Path) -> Any:
    """The file as the module that pyflyte would make of it: below the first folder that is no package."""
    root, parts = path.resolve().parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(".".join(parts))
    except (Exception, SystemExit) as error:
        raise Unreadable(f"{path} cannot be imported: {type(error).__name__}: {error}") from error


def _serialized(task: PythonTask, image: str | None) -> TaskTemplate:
    settings = SerializationSettings(
        project="project", domain="development", version=_VERSION, image_config=_images(image)
    )
    context = FlyteContextManager.current_context()
    # In an execution flytekit names the image of an ImageSpec, and does not build it.
    mode = context.new_execution_state().with_params(mode=ExecutionState.Mode.TASK_EXECUTION)
    with FlyteContextManager.with_context(context.with_execution_state(mode)):
        spec = get_serializable(OrderedDict(), settings, task)
    written: TaskTemplate = spec.template.to_flyte_idl()
    return written


def _images(name: str | None) -> ImageConfig:
    if name is None:
        return ImageConfig.auto_default_image()
    return ImageConfig(default_image=Image.look_up_image_info("default", name))
