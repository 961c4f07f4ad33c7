"""Reads a task template from a file: a Python file, a serialized task or an archive.

Only Python files need flytekit, which is imported only for them.
"""

import codecs
import json
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import Final

from flyteidl.admin.task_pb2 import TaskSpec
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError

from backend_plugin.cli import input_files
from backend_plugin.cli.command_errors import Misused, UnusableInput

_GZIP: Final = b"\x1f\x8b"
_TAR_SUFFIXES: Final = (".tgz", ".gz", ".tar")
_NO_TASK: Final = (
    "is not a task template or task spec (protobuf or protobuf JSON), and not an archive of pyflyte package; "
    "name a Python file with the suffix .py, or a file *_1.pb that pyflyte wrote"
)


def load_template(file: str, task: str | None, *, image: str | None) -> TaskTemplate:
    """Return the task named `task` in `file`; without a name, the only task of the file.

    The file ``-`` is stdin. `image` is the image for a task in a Python file that sets none.

    Raises:
        UnusableInput: If the file cannot be read or has no such task; the message suggests similar names.
    """
    path = Path("stdin" if file == "-" else file)
    if path.suffix == ".py":
        if not path.is_file():
            raise Misused(f"{file}: there is no such file")
        from backend_plugin.cli import python_file

        return python_file.load_task(path, task, image=image).template
    tasks = _read_tasks(input_files.read_input(file), path)
    return tasks[select_task(tasks, task, path)]


def select_task(names: Collection[str], task: str | None, path: Path) -> str:
    """Return the full name of the task that `task` selects; `task` may omit the first parts of the name.

    If `task` is None, select the only task. Raise `UnusableInput` if no task or several tasks match.
    """
    if not names:
        raise UnusableInput(f"{path}: contains no task")
    matches = [name for name in names if task is None or f".{name}".endswith(f".{task}")]
    if task in matches:
        return task
    if len(matches) == 1:
        return matches[0]
    raise Misused(f"{path}: {_format_selection_problem(names, matches, task)}")


def _format_selection_problem(tasks: Iterable[str], matches: Sequence[str], task: str | None) -> str:
    if matches:
        problem = "no task is given." if task is None else f"{task} matches several tasks."
        return f"{problem} Name one of: {', '.join(sorted(matches))}"
    near = get_close_matches(str(task), sorted({name.rpartition(".")[2] for name in tasks}), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(sorted(tasks))}"
    return f"has no task {task}; {hint}"


def _read_tasks(data: bytes, path: Path) -> Mapping[str, TaskTemplate]:
    if data.startswith(_GZIP) or path.suffix in _TAR_SUFFIXES:
        return _read_archive(data, path)
    # Windows writes a byte order mark before text.
    is_text = data.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"
    template = _decode_json(data, path) if is_text else _decode_protobuf(data)
    if template is None:
        raise UnusableInput(f"{path}: {_NO_TASK}")
    return {template.id.name: template}


def _decode_json(data: bytes, path: Path) -> TaskTemplate | None:
    try:
        document = json.loads(data)
        # A task spec contains a template.
        template: TaskTemplate = ParseDict(
            document.get("template", document), TaskTemplate(), ignore_unknown_fields=True
        )
    except (ValueError, RecursionError, ParseError) as error:
        raise UnusableInput(f"{path}: is not a task template as protobuf JSON: {error}") from error
    return template if template.type else None


def _decode_protobuf(data: bytes) -> TaskTemplate | None:
    """Decode a task spec or a task template; None if neither decoding yields a template with a type."""
    for kind in (TaskSpec, TaskTemplate):
        try:
            message = kind.FromString(data)
        except DecodeError:
            continue
        template: TaskTemplate = message.template if kind is TaskSpec else message
        if template.type:
            return template
    return None


def _read_archive(data: bytes, path: Path) -> Mapping[str, TaskTemplate]:
    """Read the tasks from an archive of ``pyflyte package``; their files have the suffix ``_1.pb``."""
    try:
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            members = [member for member in archive.getmembers() if member.name.endswith("_1.pb")]
            files = [archive.extractfile(member) for member in members]
            templates = [_decode_protobuf(file.read()) for file in files if file is not None]
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UnusableInput(f"{path}: is not an archive that pyflyte package wrote: {error}") from error
    return {each.id.name: each for each in templates if each is not None}
