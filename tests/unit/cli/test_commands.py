"""Tests of the table of commands, of their options, and of missing packages."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import rich_click as click
import yaml
from builders import a_template
from click.testing import CliRunner

from backend_plugin.cli.commands import COMMANDS, kfpytorch

WITHOUT = """
import sys
missing = sys.argv[1]
class Missing:
    def find_spec(self, name, *rest):
        if name == missing:
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
REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PARTS = re.split(r"^## kfpytorch (\w+)", (REFERENCE / "client-commands.md").read_text(), flags=re.MULTILINE)
DOCTOR = (REFERENCE / "doctor.md").read_text().partition("| option |")[2].partition("\n\n")[0]
SECTIONS = {**dict(zip(PARTS[1::2], PARTS[2::2], strict=True)), "doctor": DOCTOR}
# Options that have one meaning and a different text in some commands.
SAME_MEANING = {
    *("--namespace", "--output", "--kubeconfig", "--settings", "--pod-templates", "--output-prefixes"),
    *("--timeout", "--all", "--watch"),
}


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.py", "nothing.py: there is no such file"),
        ("notes.txt", "notes.txt: is not a Python file; name a .py file with a @task"),
    ],
)
def test_submit_and_demo_explain_a_file_without_tasks(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    for command in ("submit", "demo"):
        result = CliRunner().invoke(kfpytorch, [command, name])
        assert (result.exit_code, result.stderr) == (2, f"Error: {message}\n")


def test_each_command_has_the_short_help_option() -> None:
    # In a process of its own: click keeps the options of a command that another test ran without the group.
    done = subprocess.run([sys.executable, "-c", SHORT_HELP], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [*COMMANDS]


def test_help_is_printed_with_ascii_only() -> None:
    for words in (["render", "--help"], ["explain", "--help"], ["--help"], ["--version"]):
        result = CliRunner(charset="ascii").invoke(kfpytorch, words)
        assert (result.exit_code, "kfpytorch" in result.output) == (0, True)


def test_each_command_has_a_section_unless_another_page_describes_it() -> None:
    assert set(SECTIONS) == {*COMMANDS} - {"explain", "render", "serve", "stacks"}


@pytest.mark.parametrize("name", SECTIONS)
def test_each_option_is_in_the_section_of_its_command(name: str) -> None:
    command = kfpytorch.get_command(None, name)
    documented = set(re.findall(r"(?<![\w-])--?[a-z]+(?:-[a-z]+)*", SECTIONS[name]))
    known = {option for param in command.params for option in param.opts if option.startswith("-")}
    assert documented - {"-"} == known


def options() -> dict[str, dict[str, click.Option]]:
    """Return the options of all commands, by their names and commands."""
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for name in COMMANDS:
        for param in kfpytorch.get_command(None, name).params:
            if isinstance(param, click.Option):
                for text in (*param.opts, *param.secondary_opts):
                    found[text][name] = param
    return found


def test_option_has_the_same_help_in_each_command_unless_listed() -> None:
    different = {
        text: by_command
        for text, by_command in options().items()
        if text.startswith("--") and len({param.help for param in by_command.values()}) > 1
    }
    assert set(different) == SAME_MEANING


def test_short_option_stands_for_one_long_option_and_a_flag_is_one_everywhere() -> None:
    for text, by_command in options().items():
        assert len({param.is_flag for param in by_command.values()}) == 1, text
        long = {next(each for each in param.opts if each.startswith("--")) for param in by_command.values()}
        assert text.startswith("--") or len(long) == 1, text


CLUSTER_COMMANDS = {
    "doctor": (),
    "gc": (),
    "render": ("task.pb", "--dry-run=server"),
    "serve": ("--cluster", "kubernetes", "--allow-unauthenticated"),
}
CONFIG = {
    "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:9"}}],
    "contexts": [{"name": "staging", "context": {"cluster": "here", "user": ""}}],
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a directory with a task and a kubeconfig."""
    (tmp_path / "task.pb").write_bytes(a_template({"workerReplicas": {"replicas": 1}}).SerializeToString())
    (tmp_path / "config").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("command", "options", "code", "message"),
    [
        *(
            (command, "--kubeconfig config --context nope", 1, "kubeconfig config: has no context nope")
            for command in CLUSTER_COMMANDS
        ),
        *(
            (command, "--namespace Foo_Bar", 2, "'Foo_Bar' is not a valid namespace name")
            for command in ("doctor", "gc", "render")
        ),
        ("gc", "--namespace flytesnacks-* --kubeconfig no", 1, "kubeconfig no: there is no such file"),
    ],
)
def test_invalid_cluster_option_is_an_error_with_its_value(command, options, code, message):
    done = CliRunner().invoke(kfpytorch, [command, *CLUSTER_COMMANDS[command], *options.split()])
    output = " ".join(done.output.replace("│", "").split())
    assert (done.exit_code, message in output) == (code, True), output
