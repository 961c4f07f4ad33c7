"""``kfpytorch logs``: prints the log lines of a job's replicas, each with the name of its replica."""

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from backend_plugin import client
from backend_plugin.cli import asking, job_table, tables
from kfpytorch_common.output_lines import format_plain

if TYPE_CHECKING:
    from kfpytorch_idl.v1 import job_service_pb2 as wire

_HELP: Final = """Print the output of the replicas of JOB, ordered by time.

JOB is a job name, the beginning of one, or the name of a Flyte execution.

\b
  $ kfpytorch logs -f f1-n0-0
  $ kfpytorch logs f1-n0-0 --rank 3 --tail 20
"""
_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")
# Control characters that a terminal would interpret, except the tab.
_CONTROL: Final = {code: None for code in (*range(32), *range(127, 160)) if code != ord("\t")}
_NUMBERS: Final = click.IntRange(min=0, max=2**31 - 1)
_NUMBER: Final = re.compile(r"\d+$")


@click.command(name="logs", help=_HELP)
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the job ends.")
@click.option("--rank", type=_NUMBERS, metavar="N", help="Only the output of this rank.")
@click.option("--replica", metavar="NAME", help="Only the output of this replica, such as worker-1.")
@click.option(
    "--node", type=_NUMBERS, metavar="N", help="Only the output of this node, in the order of ranks."
)
@click.option("--tail", type=_NUMBERS, metavar="N", help="Only the last N lines of each replica.")
@click.option("--previous", "-p", is_flag=True, help="Output from before the last restart of the containers.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@asking.namespace_option
@asking.server_options
@asking.output_option("text")
def command(**options: Any) -> None:
    """Run ``kfpytorch logs``."""
    log_options = client.LogOptions(
        **{key: options[key] for key in ("follow", "tail", "rank", "replica", "node", "previous")},
    )
    with asking.exit_on_error():
        read = client.read_log_parts(options["job"], log_options, **job_table.get_request_options(options))
        said_nothing = True
        with closing(read) as parts:
            for part in parts:
                said_nothing = False
                sys.stdout.buffer.write(b"".join(_format_lines(part.lines, options)))
                sys.stdout.buffer.flush()
        if said_nothing:
            click.echo("there is no output, or it was deleted with the pods", err=True)


def _format_lines(part: Iterable["wire.LogLine"], options: Mapping[str, Any]) -> Iterable[bytes]:
    if options["output"] == "json":
        from backend_plugin.cli.json_lines import encode_json

        return (encode_json(asking.encode_message(line)) + b"\n" for line in part)
    coloured = tables.is_coloured()
    return (_format_line(line, coloured=coloured, timed=options["timestamps"]) for line in part)


def _format_line(line: "wire.LogLine", *, coloured: bool, timed: bool) -> bytes:
    name = f"[{line.replica}]"
    prefix = click.style(name, fg=get_colour(line.replica)) if coloured else name
    time = f"{line.time} " if timed else ""
    text = format_plain(line.text.encode(errors="replace")).decode(errors="replace").translate(_CONTROL)
    return f"{prefix} {time}{text}\n".encode()


def get_colour(replica: str) -> str:
    """Return the colour of a replica; neighbours have different colours."""
    number = _NUMBER.search(replica)
    place = int(number[0]) if number else 0
    return _COLOURS[(place + (not replica.startswith("master"))) % len(_COLOURS)]
