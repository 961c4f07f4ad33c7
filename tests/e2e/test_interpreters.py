"""Some of the tests with FLYTE_KFPYTORCH_FORK=0, as on macOS, where ranks are new interpreters."""

from collections.abc import Callable

import pytest

from e2e import test_rank_state, test_workers
from e2e.conftest import FAILURES, Pyflyte

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _without_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYTE_KFPYTORCH_FORK", "0")


@pytest.mark.parametrize(
    ("test", "args"),
    [
        (test_workers.test_state_of_the_module_closures_and_dataclasses_reach_every_rank, ("fork",)),
        (test_rank_state.test_each_rank_has_a_working_directory_of_its_own, ("spawn",)),
    ],
    ids=["state", "directories"],
)
def test_it_holds_for_interpreters(test: Callable[..., None], args: tuple[str, ...]) -> None:
    test(*args)


def test_replicas_have_the_operators_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    test_workers.test_replicas_have_the_operators_environment(monkeypatch)


def test_the_group_restarts(capfd: pytest.CaptureFixture[str]) -> None:
    test_workers.test_the_group_restarts_and_the_attempt_is_known(capfd)


def test_a_failure_names_its_rank_and_line(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(FAILURES / "exception.py", "train", timeout=250)
    assert ran.code == 1
    assert "failed on rank 1 (" in ran.report[0]
    assert "exception.py:17 in read_batch" in " ".join(ran.report[:3])
    assert pyflyte.left() == ([], [])
