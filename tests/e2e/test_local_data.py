"""Local runs of tasks with a data set, loaded by a stand-in for huggingface_hub."""

import os
import sys
from pathlib import Path

import pytest
from flytekit import task

from flytekitplugins.kfpytorch import PyTorch, TrainJob, Worker

HUB = """
from pathlib import Path


def snapshot_download(*, repo_id, local_dir, **_):
    Path(local_dir, "names.txt").write_text(repo_id)
"""


def read_names() -> str:
    return Path(os.environ["FLYTE_KFPYTORCH_DATASET"], "names.txt").read_text()


def build_task(uri: str, name: str) -> object:
    def read() -> str:
        return read_names()

    read.__qualname__ = read.__name__ = name
    options = TrainJob(dataset=uri, storage="1Gi")
    return task(read, task_config=PyTorch(worker=Worker(replicas=0), train_job=options))


@pytest.mark.torch
def test_each_rank_reads_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "huggingface_hub.py").write_text(HUB)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOCAL", "replicas")
    options = TrainJob(dataset="hf://owner/name", storage="1Gi")

    @task(task_config=PyTorch(worker=Worker(replicas=1), train_job=options))
    def train() -> str:
        import torch.distributed as dist

        dist.init_process_group()
        found = [None, None]
        dist.all_gather_object(found, read_names())
        return " ".join(map(str, found))

    assert train() == "owner/name owner/name"


def test_user_directory_replaces_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "names.txt").write_text("mine")
    monkeypatch.setenv("FLYTE_KFPYTORCH_DATASET", str(tmp_path))
    assert build_task("hf://owner/name", "reads_mine")() == "mine"


def test_path_that_is_no_directory_is_reported_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYTE_KFPYTORCH_DATASET", "/absent")
    with pytest.raises(Exception, match="FLYTE_KFPYTORCH_DATASET=/absent is not a directory"):
        build_task("hf://owner/name", "reads_nothing")()


def test_missing_package_error_contains_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Exception) as refused:  # noqa: PT011 - flytekit chooses the class.
        build_task("hf://owner/name", "finds_no_package")()
    message = str(refused.value)
    assert "pip install huggingface_hub" in message
    assert "FLYTE_KFPYTORCH_DATASET" in message
