"""JSON lines in, JSON lines out: what both batch commands have in common.

A line is answered whatever it holds; nothing but the end of the input ends the loop.
"""

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec

from backend_plugin.core import printable
from backend_plugin.core.errors import InvalidSettings, InvalidTask, Problem
from backend_plugin.core.protojson import shown

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def answer_all(answer: Answer, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every line that is not empty with one line that has its id, as soon as it is read."""
    for line in requests:
        if line.strip():
            answers.write(respond(answer, line) + b"\n")
            answers.flush()


def respond(answer: Answer, line: bytes) -> bytes:
    """One line's answer, without its end."""
    return as_json(_answered(answer, line))


def as_json(value: Any) -> bytes:
    """JSON with keys in their order, so that equal values are equal bytes."""
    return printable.escape_json(msgspec.json.encode(value, order="sorted").decode()).encode()


def invalid(field: str, value: object, message: str, remedy: str) -> InvalidTask:
    """An error of one problem."""
    return InvalidTask(Problem(field=field, value=shown(value), message=message, remedy=remedy))


def _answered(answer: Answer, line: bytes) -> Mapping[str, Any]:
    request: Any = None
    try:
        request = _object(line)
        return {"id": request.get("id"), **answer(request)}
    except (InvalidTask, InvalidSettings) as refusal:
        problems = refusal.problems
    except RecursionError:
        problems = invalid("", "…", "is nested too deeply", "write no more levels than a pod has").problems
    except Exception as error:  # noqa: BLE001 - a border: a defect of ours costs its own line only
        text = f"{type(error).__name__}: {error}"
        problems = invalid("", text, "is a defect of ours", "report it, with this line").problems
    said = request.get("id") if isinstance(request, Mapping) else _id_of_no_request(line)
    return {"id": said, "problems": _plain(problems)}


def _id_of_no_request(line: bytes) -> Any:
    """Of what is nearly JSON, so that whoever asked can tell which question it was; else None."""
    try:
        said = json.loads(line)
        return msgspec.json.decode(as_json(said["id"]))
    except (LookupError, TypeError, ValueError, RecursionError):
        return None


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(line.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = line.decode(errors="replace").strip()
        raise invalid("", text, f"is not JSON: {error}", "write one JSON object a line") from error
    if not isinstance(value, Mapping):
        raise invalid("", value, "is not an object", "write one JSON object a line")
    return value


def _plain(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [
        {"field": each.field, "value": each.value, "message": each.message, "remedy": each.remedy}
        for each in problems
    ]
