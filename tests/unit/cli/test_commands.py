"""Tests of the table of commands, and of missing packages."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from backend_plugin.cli.commands import COMMANDS, kfpytorch

WITHOUT = """
import sys
lacking = sys.argv[1]
class Missing:
    def find_spec(self, name, *rest):
        if name == lacking:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from backend_plugin.cli import main
sys.argv[1:] = ["render", "nothing.pb"]
main()
"""

SHORT_HELP = """
from click.testing import CliRunner
from backend_plugin.cli.commands import COMMANDS, kfpytorch
for command in COMMANDS:
    result = CliRunner().invoke(kfpytorch, [command, "-h"])
    if result.exit_code == 0 and result.output.strip().startswith(f"Usage: kfpytorch {command}"):
        print(command)
"""


@pytest.mark.parametrize("name", ["msgspec", "rich_click"])
def test_missing_extra_error_contains_the_install_command(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, name], check=False, capture_output=True, text=True)
    remedy = 'write: pip install "flytekitplugins-kfpytorch[backend]"'
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kfpytorch needs {name}, which is not installed; {remedy}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rendr"], "No such command 'rendr'. Did you mean 'render'?"),
        (["xyz"], "No such command 'xyz'."),
        (["render", "--imag", "x"], "Did you mean '--image'?"),
        (["render", "f", "-o", "jsno"], "is not one of"),
    ],
)
def test_mistyped_command_or_option_gets_a_suggestion(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(kfpytorch, arguments)
    assert (result.exit_code, message in " ".join(result.output.split())) == (2, True), result.output


def test_each_command_has_the_short_help_option() -> None:
    # In a process of its own: click keeps the options of a command that another test ran without the group.
    done = subprocess.run([sys.executable, "-c", SHORT_HELP], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [*COMMANDS]


def test_help_is_printed_with_ascii_only() -> None:
    for command in ("render", "explain"):
        result = CliRunner(charset="ascii").invoke(kfpytorch, [command, "--help"])
        assert result.exit_code == 0
        assert f"$ kfpytorch {command}" in result.output or "| kfpytorch" in result.output
    for option in ("--help", "--version"):
        result = CliRunner().invoke(kfpytorch, [option])
        assert (result.exit_code, "kfpytorch" in result.output) == (0, True)
