"""Local runs of tasks with a data set, loaded by a stand-in for huggingface_hub."""

import os
import sys
from pathlib import Path

import pytest
from flytekit import task

from e2e.conftest import Pyflyte
from flytekitplugins.kfpytorch import PyTorch, TrainJob, Worker

HUB = """
from pathlib import Path


def snapshot_download(*, repo_id, local_dir, **_):
    Path(local_dir, "names.txt").write_text(repo_id)
"""
SCRIPT = """
import os
import sys
from pathlib import Path

from flytekit import task

from flytekitplugins.kfpytorch import PyTorch, TrainJob, Worker


@task(
    task_config=PyTorch(
        worker=Worker(replicas=1), train_job=TrainJob(dataset="hf://owner/name", storage="1Gi")
    )
)
def train() -> str:
    import torch.distributed as dist

    dist.init_process_group()
    found = [None, None]
    dist.all_gather_object(found, Path(os.environ["FLYTE_KFPYTORCH_DATASET"], "names.txt").read_text())
    dist.destroy_process_group()
    return " ".join(found)
"""


def read_names() -> str:
    return Path(os.environ["FLYTE_KFPYTORCH_DATASET"], "names.txt").read_text()


def build_task(uri: str, name: str) -> object:
    def read() -> str:
        return read_names()

    read.__qualname__ = read.__name__ = name
    options = TrainJob(dataset=uri, storage="1Gi")
    return task(read, task_config=PyTorch(worker=Worker(replicas=0), train_job=options))


def test_each_rank_reads_the_data_set(pyflyte: Pyflyte, tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub.py").write_text(HUB)
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = pyflyte.run(
        tmp_path / "script.py",
        "train",
        PYTHONPATH=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert ran.code == 0, ran.err
    assert "owner/name owner/name" in ran.out


def test_user_directory_replaces_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "names.txt").write_text("mine")
    monkeypatch.setenv("FLYTE_KFPYTORCH_DATASET", str(tmp_path))
    assert build_task("hf://owner/name", "reads_mine")() == "mine"


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
