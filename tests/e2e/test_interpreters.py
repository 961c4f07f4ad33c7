"""Some of the tests with FLYTE_KFPYTORCH_FORK=0, as on macOS, where ranks are new interpreters."""

import pytest

from e2e import test_workers
from e2e.conftest import FAILURES, Pyflyte

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _without_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYTE_KFPYTORCH_FORK", "0")


def test_module_state_reaches_each_rank_without_fork() -> None:
    test_workers.test_module_state_closures_and_dataclasses_reach_each_rank("fork")


def test_failure_report_contains_the_rank_and_line(pyflyte: Pyflyte) -> None:
    ran = pyflyte.run(FAILURES / "exception.py", "train", timeout=250)
    assert ran.code == 1
    assert "failed on rank 1 (" in ran.report[0]
    assert "exception.py:17 in read_batch" in " ".join(ran.report[:3])
    assert pyflyte.left() == ([], [])
