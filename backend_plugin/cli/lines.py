"""JSON lines of the batch commands: one reply per request line.

Each line results in a reply, even if it is invalid; the loop ends at the end of the input.
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
    """Reply to each non-empty line with one line that contains its id, as soon as the line is read."""
    for line in requests:
        if line.strip():
            answers.write(respond(answer, line) + b"\n")
            answers.flush()


def respond(answer: Answer, line: bytes) -> bytes:
    """Return the reply to one line, without a newline."""
    return as_json(_answered(answer, line))


def as_json(value: Any) -> bytes:
    """Return JSON with sorted keys, so that equal values have equal bytes."""
    return printable.escape_json(msgspec.json.encode(value, order="sorted").decode()).encode()


def invalid(field: str, value: object, message: str, remedy: str) -> InvalidTask:
    """Return an error with one problem."""
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
    except Exception as error:  # noqa: BLE001 - a defect must not affect other lines
        text = f"{type(error).__name__}: {error}"
        problems = invalid("", text, "is an internal error of kfpytorch", "report it with this line").problems
    said = request.get("id") if isinstance(request, Mapping) else _id_of_no_request(line)
    return {"id": said, "problems": _plain(problems)}


def _id_of_no_request(line: bytes) -> Any:
    """Return the id of a line that is almost JSON, so that the client can match the reply, or None."""
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
        raise invalid("", text, f"is not JSON: {error}", "write one JSON object per line") from error
    if not isinstance(value, Mapping):
        raise invalid("", value, "is not an object", "write one JSON object per line")
    return value


def _plain(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [
        {"field": each.field, "value": each.value, "message": each.message, "remedy": each.remedy}
        for each in problems
    ]
