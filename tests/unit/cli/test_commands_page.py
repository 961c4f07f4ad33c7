"""Tests that the page about the client commands contains each of their options."""

import re
from pathlib import Path

import pytest

from backend_plugin.cli.commands import kfpytorch

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client-commands.md"
COMMANDS = (
    *("jobs", "describe", "wait", "logs", "cancel", "nodes"),
    *("runtimes", "gc", "health", "demo", "submit"),
)


def sections() -> dict[str, str]:
    parts = re.split(r"^## kfpytorch (\w+)", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_each_command_has_a_section() -> None:
    assert tuple(sections()) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_in_the_section_of_its_command(name: str) -> None:
    command = kfpytorch.get_command(None, name)
    documented = set(re.findall(r"(?<![\w-])--?[a-z]+(?:-[a-z]+)*", sections()[name]))
    known = {option for param in command.params for option in param.opts if option.startswith("-")}
    assert documented - {"-"} == known
