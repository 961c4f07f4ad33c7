"""The check of the packages of a task before a local run."""

from importlib.metadata import version
from types import SimpleNamespace

import pytest
from flytekit import task

from flytekitplugins.kfpytorch import Elastic, PyTorch, TrainJob, Worker
from flytekitplugins.kfpytorch.worker.local_requirements import PackagesNotInstalled, require_packages

ABSENT = TrainJob(packages=["no-such"])


def require(*packages: str) -> None:
    require_packages(SimpleNamespace(train_job=TrainJob(packages=packages)))


def test_installed_packages_are_accepted() -> None:
    require("packaging", f"flytekit=={version('flytekit')}", "no-such; python_version < '3'")
    require_packages(SimpleNamespace(train_job=None))
    require_packages(SimpleNamespace(train_job=TrainJob()))


def test_missing_packages_are_named_with_the_install_command() -> None:
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
