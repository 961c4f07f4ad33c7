"""The arguments and options of the commands that read a task."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import rich_click as click
from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.cli import cluster_options, sample_attempt, task_files
from backend_plugin.core.job import Attempt

Command = TypeVar("Command", bound=Callable[..., Any])


def add(*, needs_file: bool = False) -> Callable[[Command], Command]:
    """Add ``[FILE] [TASK]``, ``--input`` and ``--image``."""
    return cluster_options.add_options(
        click.argument("file", required=needs_file),
        click.argument("task", required=False),
        click.option(
            "--input",
            "-i",
            "inputs",
            multiple=True,
            metavar="K=V",
            help="An input of the task, as JSON or text.",
        ),
        click.option(
            "--image", metavar="NAME", help="Image of tasks that set none. Default: flytekit's image."
        ),
    )


def read(
    options: Mapping[str, Any], place: sample_attempt.Place, default: TaskTemplate | None = None
) -> tuple[TaskTemplate, Attempt]:
    """Return the task as a connector would receive it, and the example attempt.

    `default` is the task if the options name no file.

    Raises:
        InvalidInput: If there is no such file, task or input, or an input that the arguments
            use has no value.
    """
    named = default is None or options["file"]
    template = (
        task_files.load_template(options["file"], options["task"], image=options["image"])
        if named
        else default
    )
    assert template is not None  # noqa: S101 - for mypy: one of the two is given.
    return sample_attempt.build_attempt(
        template, sample_attempt.parse_inputs(options["inputs"], template), place
    )
