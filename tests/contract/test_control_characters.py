"""Text for users contains no control characters that a terminal or browser interprets."""

import click
import pytest
from serving import Served
from tiny_service import code_of

from backend_plugin.cli import command_errors, inspect_commands, tables
from backend_plugin.core import printable
from backend_plugin.core.errors import Problem, RequestRejected
from backend_plugin.core.observed import Event
from backend_plugin.shell import job_encoding
from backend_plugin.shell.cluster import ClusterUnavailable
from kfpytorch_idl.v1 import job_service_pb2 as wire

EVIL = "\x1b[31mred\x9b0m \u202egnp.exe\u202c \u2028next\x00"
SHOWN = r"\x1b[31mred\x9b0m \u202egnp.exe\u202c \u2028next\x00"


@pytest.mark.parametrize(
    "error",
    [RequestRejected(403, "Forbidden", f"{EVIL} exceeded quota"), ClusterUnavailable(EVIL)],
    ids=["quota", "away"],
)
async def test_call_errors_contain_no_control_characters(served: Served, error: Exception) -> None:
    served.cluster.refusal = error
    assert SHOWN in (await code_of(served.create()))[1]


def test_job_event_contains_no_control_characters() -> None:
    assert job_encoding._encode_event(Event(reason="R", message=EVIL)).message == SHOWN


def test_command_output_contains_no_control_characters() -> None:
    job = wire.Job(name="j", verdict=wire.Verdict(phase="FAILED", message=EVIL))
    job.events.add(reason="R", message=EVIL)
    lines = [
        *tables.format_table(("A", "B"), [(EVIL, EVIL)]),
        *tables.format_verdict("FAILED", "", job.verdict),
        *inspect_commands._format_events(job),
    ]
    # A table cuts its last column at the width of the terminal.
    text = click.unstyle("\n".join(lines))
    assert text.count(SHOWN[:20]) == 4
    assert printable.escape(text) == text


def test_command_errors_contain_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(field="f", value=EVIL, message="is wrong", remedy="write another")
    command_errors.print_problems([problem])
    with pytest.raises(SystemExit):
        command_errors.exit_with_error(command_errors.UnusableInput(EVIL))
    assert capsys.readouterr().err == f"f: {SHOWN}\n  is wrong; write another\nError: {SHOWN}\n"
