"""The user's options for local runs, the check of the packages, and errors for invalid ones."""

import warnings
from importlib.metadata import version
from types import SimpleNamespace

import click
import pytest
from flytekit import task

from flytekitplugins.kfpytorch import Elastic, PyTorch, TrainJob, Worker
from flytekitplugins.kfpytorch.worker import runtime_info
from flytekitplugins.kfpytorch.worker.local_requirements import PackagesNotInstalled, require_packages
from flytekitplugins.kfpytorch.worker.runtime_info import InvalidLocalMode, LocalMode

INLINE, REPLICAS = LocalMode(inline=True), LocalMode(inline=False)
ABSENT = TrainJob(packages=["no-such"])


@pytest.mark.parametrize(
    ("value", "by_default", "under_pyflyte_run"),
    [
        (None, INLINE, REPLICAS),
        ("", INLINE, REPLICAS),
        ("replicas", REPLICAS, REPLICAS),
        (" Replicas ", REPLICAS, REPLICAS),
        ("inline", INLINE, INLINE),
        ("64", LocalMode(inline=False, ranks=64), LocalMode(inline=False, ranks=64)),
    ],
)
def test_local_mode_is_selected(value, by_default, under_pyflyte_run) -> None:
    env = {} if value is None else {"FLYTE_KFPYTORCH_LOCAL": value}
    assert runtime_info.read_local_mode(env, replicas_by_default=False) == by_default
    assert runtime_info.read_local_mode(env, replicas_by_default=True) == under_pyflyte_run


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "²", "in-line"])
def test_invalid_local_mode_is_rejected(value: str) -> None:
    with pytest.raises(InvalidLocalMode) as refused:
        runtime_info.read_local_mode({"FLYTE_KFPYTORCH_LOCAL": value}, replicas_by_default=True)
    assert str(refused.value) == (
        f"FLYTE_KFPYTORCH_LOCAL={value!r} must be 'replicas', 'inline' or a number of ranks above 0"
    )


def test_verbose_variable_shows_all_ranks():
    values = ("1", "true", "YES", "0", "false", "No", "")
    found = [runtime_info.is_verbose({"FLYTE_KFPYTORCH_VERBOSE": value}) for value in values]
    assert found == [True] * 3 + [False] * 4


def params(**fields):
    """Return the parameters of `pyflyte run`, in flytekit's own class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flytekit's command line uses deprecated functions of click.
        from flytekit.clis.sdk_in_container.run import RunLevelParams
    return RunLevelParams(**fields)


@pytest.mark.parametrize(
    ("remote", "verbose", "expected"),
    [(False, 0, (True, False)), (False, 1, (True, True)), (True, 1, (False, False))],
)
def test_pyflyte_run_is_detected_from_the_click_context(remote, verbose, expected) -> None:
    with (
        click.Context(click.Command("run"), obj=params(remote=remote, verbose=verbose)) as run,
        click.Context(click.Command("main"), parent=run, obj="the task's own"),
    ):
        assert (runtime_info.is_under_pyflyte_run(), runtime_info.is_verbose({})) == expected
        # The environment takes precedence over the command line.
        assert runtime_info.is_verbose({"FLYTE_KFPYTORCH_VERBOSE": "0"}) is False
    assert (runtime_info.is_under_pyflyte_run(), runtime_info.is_verbose({})) == (False, False)


def require(*packages):
    require_packages(SimpleNamespace(train_job=TrainJob(packages=packages)))


def test_installed_packages_are_accepted():
    require("packaging", f"flytekit=={version('flytekit')}", "no-such; python_version < '3'")
    require_packages(SimpleNamespace(train_job=None))
    require_packages(SimpleNamespace(train_job=TrainJob()))


def test_missing_packages_are_named_with_the_install_command():
    with pytest.raises(PackagesNotInstalled) as caught:
        require("no-such>=1", "packaging", "flytekit<1")
    message = str(caught.value)
    assert f"no-such>=1 (not installed), flytekit<1 ({version('flytekit')} is installed)" in message
    assert message.endswith("pip install 'no-such>=1' 'flytekit<1'")


@task(task_config=PyTorch(worker=Worker(replicas=1), train_job=ABSENT))
def trained() -> int:
    return 1


@task(task_config=Elastic(nnodes=2, train_job=ABSENT))
def trained_by_agents() -> int:
    return 1


@pytest.mark.parametrize("run", [trained, pytest.param(trained_by_agents, marks=pytest.mark.torch)])
def test_local_run_does_not_start_without_the_packages(run: object) -> None:
    with pytest.raises(PackagesNotInstalled, match="pip install 'no-such'"):
        run()  # type: ignore[operator]
