"""Error exits of commands.

Errors are plain, unwrapped lines on stderr, so that users can search for them and copy the remedies.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

import rich_click as click

from backend_plugin.core import printable
from backend_plugin.core.errors import BackendError, InvalidInput, Problem

_REFUSED: Final = 1
_MISUSED: Final = 2
"""The exit code for an invalid command line, the same as that of click."""


class UnusableInput(Exception):
    """Input that cannot be used, such as a file with invalid content; the message contains the remedy."""


class Misused(UnusableInput):
    """An invalid command line: a malformed value, or a file, task or input that does not exist."""


def exit_with_error(error: Exception, code: int = _REFUSED) -> NoReturn:
    """Print the error and exit with `code`, or with 2 if the error is `Misused`."""
    click.echo(printable.escape(f"Error: {error}"), err=True)
    sys.exit(_MISUSED if isinstance(error, Misused) else code)


@contextmanager
def exit_on_invalid_input() -> Iterator[None]:
    """Exit with messages if the input, the settings or a request to a cluster cannot be used."""
    try:
        yield
    except InvalidInput as refusal:
        print_problems(refusal.problems)
        sys.exit(exit_code(refusal.problems))
    except (UnusableInput, BackendError) as error:
        exit_with_error(error)


def print_problems(problems: Sequence[Problem]) -> None:
    """Print all problems of a task or of the settings to stderr, each with its remedy."""
    for problem in problems:
        text = f"{problem.field}: {problem.value}\n  {problem.message}; {problem.remedy}"
        click.echo(printable.escape(text), err=True)


def exit_code(problems: Sequence[Problem]) -> int:
    """Return the exit code: 0 without problems, 2 if a problem concerns an option, else 1."""
    if not problems:
        return 0
    return _MISUSED if any(problem.field.startswith("--") for problem in problems) else _REFUSED


def require_batch_alone() -> None:
    """Reject other options beside ``--batch``, because a batch reads all input from stdin.

    Raises:
        UsageError: If another option is given.
    """
    context = click.get_current_context()
    assert context is not None  # noqa: S101 - for mypy: a command is running.
    others = [
        each.human_readable_name
        for each in context.command.params
        if each.name not in ("batch", "output")
        and (source := context.get_parameter_source(str(each.name))) is not None
        and source.name == "COMMANDLINE"
    ]
    if others:
        raise click.UsageError(f"--batch reads all input from stdin; write it without {others[0]}")
