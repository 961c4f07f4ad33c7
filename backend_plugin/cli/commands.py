"""The table of commands; the module of a command is imported when the command runs."""

from difflib import get_close_matches
from importlib import import_module
from typing import Final

import rich_click as click

# The module of each name defines the command as `command`.
COMMANDS: Final = (
    "render",
    "explain",
    "serve",
    "demo",
    "submit",
    "jobs",
    "describe",
    "wait",
    "logs",
    "stacks",
    "cancel",
    "nodes",
    "runtimes",
    "gc",
    "health",
    "doctor",
)


class _Commands(click.RichGroup):
    """A group that imports commands by name, and suggests the nearest name for an unknown one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = import_module(f"backend_plugin.cli.{cmd_name}").command
            return command
        near = get_close_matches(cmd_name, COMMANDS, n=1)
        if near and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{cmd_name}'. Did you mean '{near[0]}'?")
        return None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flytekitplugins-kfpytorch")
def kfpytorch() -> None:
    """Run and inspect distributed PyTorch jobs of Flyte."""
