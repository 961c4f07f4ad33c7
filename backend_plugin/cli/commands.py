"""The table of commands; the module of a command is imported when the command runs."""

from difflib import get_close_matches
from pkgutil import resolve_name
from typing import Final

import rich_click as click

COMMANDS: Final = {
    "render": "render:command",
    "explain": "explain:command",
    "serve": "serve:command",
    "demo": "demo:command",
    "submit": "submit:command",
    "jobs": "job_commands:jobs",
    "describe": "inspect_commands:describe",
    "wait": "job_commands:wait",
    "logs": "inspect_commands:logs",
    "stacks": "stacks:command",
    "cancel": "job_commands:cancel",
    "nodes": "cluster_commands:nodes",
    "runtimes": "cluster_commands:runtimes",
    "gc": "gc:command",
    "health": "cluster_commands:health",
    "doctor": "doctor:command",
}
"""The module and the function of each command."""


class _Commands(click.RichGroup):
    """A group that imports commands by name, and suggests the nearest name for an unknown one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = resolve_name(f"backend_plugin.cli.{COMMANDS[cmd_name]}")
            return command
        near = get_close_matches(cmd_name, COMMANDS, n=1)
        if near and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{cmd_name}'. Did you mean '{near[0]}'?")
        return None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flytekitplugins-kfpytorch")
def kfpytorch() -> None:
    """Run and inspect distributed PyTorch jobs of Flyte."""
