"""The user's options for local runs, and errors for invalid ones."""

import warnings
from typing import Any

import click
import pytest

from flytekitplugins.kfpytorch.worker import mode
from flytekitplugins.kfpytorch.worker.mode import BadMode, Mode


@pytest.mark.parametrize(
    ("said", "by_default", "under_pyflyte_run"),
    [
        ({}, Mode(inline=True), Mode(inline=False)),
        ({"FLYTE_KFPYTORCH_LOCAL": ""}, Mode(inline=True), Mode(inline=False)),
        ({"FLYTE_KFPYTORCH_LOCAL": "replicas"}, Mode(inline=False), Mode(inline=False)),
        ({"FLYTE_KFPYTORCH_LOCAL": " Replicas "}, Mode(inline=False), Mode(inline=False)),
        ({"FLYTE_KFPYTORCH_LOCAL": "inline"}, Mode(inline=True), Mode(inline=True)),
        ({"FLYTE_KFPYTORCH_LOCAL": "1"}, Mode(inline=False, ranks=1), Mode(inline=False, ranks=1)),
        ({"FLYTE_KFPYTORCH_LOCAL": "64"}, Mode(inline=False, ranks=64), Mode(inline=False, ranks=64)),
    ],
)
def test_a_mode_is_chosen(said: dict[str, str], by_default: Mode, under_pyflyte_run: Mode) -> None:
    assert mode.chosen(said, replicas_by_default=False) == by_default
    assert mode.chosen(said, replicas_by_default=True) == under_pyflyte_run


@pytest.mark.parametrize(
    ("said", "guess"),
    [
        ("0", ""),
        ("-1", ""),
        ("2.5", ""),
        ("²", ""),
        ("true", ""),
        ("in-line", "; did you mean 'inline'?"),
        ("Replica", "; did you mean 'replicas'?"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: str, guess: str) -> None:
    with pytest.raises(BadMode) as refused:
        mode.chosen({"FLYTE_KFPYTORCH_LOCAL": said}, replicas_by_default=True)
    assert str(refused.value) == (
        f"FLYTE_KFPYTORCH_LOCAL={said!r} must be 'replicas', 'inline' or a number of ranks above 0{guess}"
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [("1", True), ("true", True), ("YES", True), ("0", False), ("false", False), ("No", False), ("", False)],
)
def test_all_ranks_are_shown_on_demand(said: str, expected: bool) -> None:
    assert mode.verbose({"FLYTE_KFPYTORCH_VERBOSE": said}) is expected


def params(**said: Any) -> Any:
    """Return the parameters of `pyflyte run`, in flytekit's own class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flytekit's command line uses deprecated functions of click.
        from flytekit.clis.sdk_in_container.run import RunLevelParams
    return RunLevelParams(**said)


def test_outside_of_click_there_is_no_pyflyte_run() -> None:
    assert (mode.under_pyflyte_run(), mode.verbose({})) == (False, False)


@pytest.mark.parametrize(
    ("remote", "verbose", "expected"),
    [(False, 0, (True, False)), (False, 1, (True, True)), (True, 1, (False, False))],
)
def test_pyflyte_run_is_found_from_the_command_it_runs(
    remote: bool, verbose: int, expected: tuple[bool, bool]
) -> None:
    with (
        click.Context(click.Command("run"), obj=params(remote=remote, verbose=verbose)) as run,
        click.Context(click.Command("main"), parent=run, obj="the task's own"),
    ):
        assert (mode.under_pyflyte_run(), mode.verbose({})) == expected


def test_the_environment_outweighs_the_command_line() -> None:
    with click.Context(click.Command("run"), obj=params(verbose=1)):
        assert mode.verbose({"FLYTE_KFPYTORCH_VERBOSE": "0"}) is False
