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

OPTIONS = TrainJob(dataset="hf://owner/name", storage="1Gi")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def read_names():
    return Path(os.environ["FLYTE_KFPYTORCH_DATASET"], "names.txt").read_text()


@task(task_config=PyTorch(worker=Worker(replicas=0), train_job=OPTIONS))
def read() -> str:
    return read_names()


@pytest.mark.torch
def test_each_rank_reads_the_data_set(tmp_path, monkeypatch):
    (tmp_path / "huggingface_hub.py").write_text(HUB)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOCAL", "replicas")

    @task(task_config=PyTorch(worker=Worker(replicas=1), train_job=OPTIONS))
    def train() -> str:
        import torch.distributed as dist

        dist.init_process_group()
        found = [None, None]
        dist.all_gather_object(found, read_names())
        return " ".join(map(str, found))

    assert train() == "owner/name owner/name"


def test_user_directory_replaces_the_download(tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("mine")
    monkeypatch.setenv("FLYTE_KFPYTORCH_DATASET", str(tmp_path))
    assert read() == "mine"


def test_path_that_is_no_directory_is_reported_before_the_start(monkeypatch):
    monkeypatch.setenv("FLYTE_KFPYTORCH_DATASET", "/absent")
    with pytest.raises(Exception, match="FLYTE_KFPYTORCH_DATASET=/absent is not a directory"):
        read()


def test_missing_package_error_contains_both_remedies(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    remedies = "pip install huggingface_hub(.|\n)*FLYTE_KFPYTORCH_DATASET"
    with pytest.raises(Exception, match=remedies):
        read()
