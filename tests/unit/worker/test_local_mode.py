"""The user's options for local runs, and errors for invalid ones."""

import warnings
from typing import Any

import click
import pytest

from flytekitplugins.kfpytorch.worker import local_mode
from flytekitplugins.kfpytorch.worker.local_mode import InvalidLocalMode, LocalMode

INLINE, REPLICAS = LocalMode(inline=True), LocalMode(inline=False)


@pytest.mark.parametrize(
    ("value", "by_default", "under_pyflyte_run"),
    [
        (None, INLINE, REPLICAS),
        ("", INLINE, REPLICAS),
        ("replicas", REPLICAS, REPLICAS),
        (" Replicas ", REPLICAS, REPLICAS),
        ("inline", INLINE, INLINE),
        ("1", LocalMode(inline=False, ranks=1), LocalMode(inline=False, ranks=1)),
        ("64", LocalMode(inline=False, ranks=64), LocalMode(inline=False, ranks=64)),
    ],
)
def test_local_mode_is_selected(
    value: str | None, by_default: LocalMode, under_pyflyte_run: LocalMode
) -> None:
    env = {} if value is None else {"FLYTE_KFPYTORCH_LOCAL": value}
    assert local_mode.read_local_mode(env, replicas_by_default=False) == by_default
    assert local_mode.read_local_mode(env, replicas_by_default=True) == under_pyflyte_run


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "²", "true", "in-line"])
def test_invalid_local_mode_is_rejected(value: str) -> None:
    with pytest.raises(InvalidLocalMode) as refused:
        local_mode.read_local_mode({"FLYTE_KFPYTORCH_LOCAL": value}, replicas_by_default=True)
    assert str(refused.value) == (
        f"FLYTE_KFPYTORCH_LOCAL={value!r} must be 'replicas', 'inline' or a number of ranks above 0"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", True), ("true", True), ("YES", True), ("0", False), ("false", False), ("No", False), ("", False)],
)
def test_verbose_variable_shows_all_ranks(value: str, expected: bool) -> None:
    assert local_mode.is_verbose({"FLYTE_KFPYTORCH_VERBOSE": value}) is expected


def params(**fields: Any) -> Any:
    """Return the parameters of `pyflyte run`, in flytekit's own class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flytekit's command line uses deprecated functions of click.
        from flytekit.clis.sdk_in_container.run import RunLevelParams
    return RunLevelParams(**fields)


@pytest.mark.parametrize(
    ("remote", "verbose", "expected"),
    [(False, 0, (True, False)), (False, 1, (True, True)), (True, 1, (False, False))],
)
def test_pyflyte_run_is_detected_from_the_click_context(
    remote: bool, verbose: int, expected: tuple[bool, bool]
) -> None:
    with (
        click.Context(click.Command("run"), obj=params(remote=remote, verbose=verbose)) as run,
        click.Context(click.Command("main"), parent=run, obj="the task's own"),
    ):
        assert (local_mode.is_under_pyflyte_run(), local_mode.is_verbose({})) == expected
        # The environment takes precedence over the command line.
        assert local_mode.is_verbose({"FLYTE_KFPYTORCH_VERBOSE": "0"}) is False
    assert (local_mode.is_under_pyflyte_run(), local_mode.is_verbose({})) == (False, False)
