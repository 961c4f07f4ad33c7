"""How a command ends that cannot do what was typed.

Plain lines on stderr, whole, so that they can be searched for and what they propose can be copied.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

import rich_click as click

from backend_plugin.core import printable
from backend_plugin.core.errors import Problem

_REFUSED: Final = 1


class Unreadable(Exception):
    """What was typed, or a file that it names, cannot be used; says what could be."""


def refuse(error: Unreadable) -> NoReturn:
    """End with what was wrong."""
    click.echo(printable.escape(f"Error: {error}"), err=True)
    sys.exit(_REFUSED)


def refuse_all(problems: Iterable[Problem]) -> NoReturn:
    """End with every problem of a task or of the settings."""
    for problem in problems:
        text = f"{problem.field}: {problem.value}\n  {problem.message}; {problem.remedy}"
        click.echo(printable.escape(text), err=True)
    sys.exit(_REFUSED)


def refuse_beside_batch(said: Mapping[str, Any]) -> None:
    """End as for a mistyped command if more was typed: a batch has all of it in its lines.

    Raises:
        UsageError: If so.
    """
    if any(value not in (None, ()) for name, value in said.items() if name not in ("batch", "output")):
        raise click.UsageError("--batch stands alone: what it is to do comes on stdin")
