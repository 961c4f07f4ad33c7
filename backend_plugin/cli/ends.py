"""Error exits of commands.

Errors are plain, unwrapped lines on stderr, so that users can search for them and copy the remedies.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

import rich_click as click

from backend_plugin.core import printable
from backend_plugin.core.errors import Problem

_REFUSED: Final = 1


class Unreadable(Exception):
    """Invalid input: an argument or a file that cannot be used; the message contains the remedy."""


def refuse(error: Unreadable) -> NoReturn:
    """Print the error and exit."""
    click.echo(printable.escape(f"Error: {error}"), err=True)
    sys.exit(_REFUSED)


def refuse_all(problems: Iterable[Problem]) -> NoReturn:
    """Print all problems of a task or of the settings, and exit."""
    for problem in problems:
        text = f"{problem.field}: {problem.value}\n  {problem.message}; {problem.remedy}"
        click.echo(printable.escape(text), err=True)
    sys.exit(_REFUSED)


def refuse_beside_batch(said: Mapping[str, Any]) -> None:
    """Reject other options beside ``--batch``, because a batch reads all input from stdin.

    Raises:
        UsageError: If another option is given.
    """
    if any(value not in (None, ()) for name, value in said.items() if name not in ("batch", "output")):
        raise click.UsageError("--batch stands alone: what it is to do comes on stdin")
