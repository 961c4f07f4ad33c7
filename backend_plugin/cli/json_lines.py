"""JSON lines of the batch commands: one reply per request line."""

import codecs
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import rich_click as click

from backend_plugin.cli import command_errors
from backend_plugin.core import printable
from backend_plugin.core.errors import InvalidInput, InvalidTask, Problem
from backend_plugin.core.protojson import build_problem
from kfpytorch_common.caught import Caught, catch

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def run_batch(answer: Answer) -> None:
    """Reply to each non-empty line of stdin with one line on stdout, as soon as the line is read.

    `answer` computes the reply to a decoded request; the line also contains the id of the request.

    Raises:
        UsageError: If the command line has another option beside ``--batch``.
    """
    command_errors.require_batch_alone()
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.buffer.write(reply_to_line(answer, line) + b"\n")
            sys.stdout.buffer.flush()


def reply_to_line(answer: Answer, line: bytes) -> bytes:
    """Return the JSON reply to one request line, without a newline."""
    request = catch(lambda: _decode_request(line))
    reply = request if isinstance(request, Caught) else catch(lambda: answer(request))
    request_id = None if isinstance(request, Caught) else request.get("id")
    fields = {"problems": _convert_error(reply.error)} if isinstance(reply, Caught) else reply
    return encode_json({"id": request_id, **fields})


def encode_json(value: Any) -> bytes:
    """Return JSON with sorted keys, so that equal values have equal bytes."""
    return printable.escape_json(msgspec.json.encode(value, order="sorted").decode()).encode()


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(encode_json(value), indent=2))


def build_error(field: str, value: object, message: str, remedy: str) -> InvalidTask:
    """Return an error that contains one problem with the given fields."""
    return InvalidTask(build_problem(field, value, message, remedy))


def _convert_error(error: BaseException) -> Sequence[Problem]:
    """Convert the error of one request to problems; an unexpected error must not end the batch."""
    if isinstance(error, InvalidInput):
        return error.problems
    text = f"{type(error).__name__}: {error}"
    return build_error("", text, "is an internal error of kfpytorch", "report it with this line").problems


def _decode_request(line: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(line.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = line.decode(errors="replace").strip()
        raise build_error("", text, f"is not JSON: {error}", "write one JSON object per line") from error
    if not isinstance(value, Mapping):
        raise build_error("", value, "is not an object", "write one JSON object per line")
    return value
