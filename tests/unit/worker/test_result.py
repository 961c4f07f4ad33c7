"""The result of rank 0 arrives unchanged, with large arrays in mapped memory."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flytekit import Deck
from result_transfer import handed_over, is_mapped

from flytekitplugins.kfpytorch.worker import result
from flytekitplugins.kfpytorch.worker.result import ElasticWorkerResult

# Above the size limit below which a copy is cheaper than a file.
MANY = 1 << 18


@dataclasses.dataclass
class Epoch:
    losses: np.ndarray
    name: str


def is_equal(arrived: np.ndarray, sent: np.ndarray) -> bool:
    return (arrived.dtype, arrived.shape) == (sent.dtype, sent.shape) and bool((arrived == sent).all())


def test_result_keeps_its_decks_and_metadata(tmp_path: Path) -> None:
    sent = ElasticWorkerResult(3, [Deck("curves", "<svg/>")], None)
    arrived = handed_over(sent, tmp_path)
    assert (arrived.return_value, arrived.om) == (3, None)
    assert [(deck.name, deck.html) for deck in arrived.decks] == [("curves", "<svg/>")]


@pytest.mark.parametrize("dtype", ["f8", ">i4", "U8", [("a", "i8"), ("b", "f4")]], ids=str)
def test_large_array_of_any_type_is_mapped(tmp_path: Path, dtype: Any) -> None:
    sent = np.ones(8 * MANY, dtype)
    arrived = handed_over(sent, tmp_path)
    assert is_equal(arrived, sent)
    assert is_mapped(arrived.ctypes.data)


@pytest.mark.parametrize(
    "sent",
    [
        np.arange(4 * MANY).reshape(4, -1).T,
        np.arange(8 * MANY)[::2],
        np.array([{"a": 1}, None] * MANY, dtype=object),
        np.empty((0, 5)),
    ],
    ids=["transposed", "strided", "objects", "empty"],
)
def test_array_of_any_layout_is_returned(tmp_path: Path, sent: np.ndarray) -> None:
    assert is_equal(handed_over(sent, tmp_path), sent)


def test_shared_array_is_returned_once_and_is_writable(tmp_path: Path) -> None:
    losses = np.arange(4 * MANY)
    arrived = handed_over({"all": [losses, losses], "epoch": Epoch(losses, "first")}, tmp_path)
    arrived["all"][0][7] = -1
    assert (arrived["all"][1][7], arrived["epoch"].losses[7], arrived["epoch"].name) == (-1, -1, "first")
    assert losses[7] == 7


def test_result_that_cannot_be_pickled_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="generator"):
        result.save((number for number in range(3)), tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_result_larger_than_the_room_in_its_directory_uses_the_workspace(tmp_path, monkeypatch) -> None:
    # A test cannot fill a file system.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10 * MANY}))
    sent = np.arange(2 * MANY)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    result.save(sent, tmp_path, workspace)
    assert [path.stat().st_size > sent.nbytes for path in workspace.iterdir()] == [True]
    assert is_equal(result.load(tmp_path), sent)
    assert list(workspace.iterdir()) == []
