"""The table of commands; a command's module is loaded when it is typed."""

from importlib import import_module
from typing import Final

import rich_click as click

# Each is `command` in the module of its name.
COMMANDS: Final = ("render", "explain")


class _Commands(click.RichGroup):
    """A group that knows its commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"backend_plugin.cli.{cmd_name}").command
        return command


@click.group(cls=_Commands)
def kfpytorch() -> None:
    """Distributed PyTorch on Flyte, seen from the platform."""
