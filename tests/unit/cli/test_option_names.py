"""Each option has one meaning, and each meaning one option, in all commands."""

from collections import defaultdict

import rich_click as click

from backend_plugin.cli.commands import COMMANDS, kfpytorch

# Options that have one meaning and a different text in some commands.
SAME_MEANING = {
    "--namespace": "the namespace of jobs",
    "--output": "the format of the output",
    "--kubeconfig": "the kubeconfig of the cluster",
    "--settings": "the file with settings",
    "--pod-templates": "PodTemplates of the cluster",
    "--output-prefixes": "URLs below which tasks write",
    "--timeout": "the time after which the command ends with an error",
    "--all": "more than the default selection",
    "--watch": "the changes after the current state",
}


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
    assert different.keys() == SAME_MEANING.keys()


def test_short_option_stands_for_one_long_option_and_a_flag_is_one_everywhere() -> None:
    for text, by_command in options().items():
        assert len({param.is_flag for param in by_command.values()}) == 1, text
        long = {next(each for each in param.opts if each.startswith("--")) for param in by_command.values()}
        assert text.startswith("--") or len(long) == 1, text


def test_render_and_doctor_have_the_same_task_arguments() -> None:
    forms = {
        name: [
            (param.name, param.opts, param.required)
            for param in kfpytorch.get_command(None, name).params
            if isinstance(param, click.Argument) or param.name in ("inputs", "image", "settings")
        ]
        for name in ("render", "doctor")
    }
    assert sorted(forms["render"]) == sorted(forms["doctor"])
