"""A function is sent to other processes, or rejected; the result of rank 0 arrives unchanged."""

import dataclasses
import pickle
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flytekit import Deck
from result_transfer import handed_over, is_mapped

from flytekitplugins.kfpytorch.worker import payloads, result
from flytekitplugins.kfpytorch.worker.loading import ExecutionSettings, Payload
from flytekitplugins.kfpytorch.worker.result import ElasticWorkerResult

LOCK = threading.Lock()
MODEL = SimpleNamespace(lock=LOCK, size=3)
# Above the size limit below which a copy is cheaper than a file.
MANY = 1 << 18


def payload(function, **inputs):
    return Payload(function, inputs, ExecutionSettings("s3://raw", None, None))


def refusal(sent):
    with pytest.raises(payloads.NotPicklable) as refused:
        payloads.encode_payload(sent, "flow.train")
    return str(refused.value)


def test_payload_is_equal_after_encoding_and_decoding():
    offset = 5

    def train(size):
        return size + offset

    sent = payload(train, size=3)
    arrived = pickle.loads(payloads.encode_payload(sent, "flow.train"))
    assert arrived.function(**arrived.inputs) == 8
    assert arrived == Payload(arrived.function, {"size": 3}, sent.settings)


def test_code_pickled_by_value_keeps_its_file_names():
    def train():
        class Model:
            def step(self):
                [(lambda: 1 / value)() for value in (1, 0)]

        Model().step()

    arrived = pickle.loads(payloads.encode_payload(payload(train), "flow.train"))
    with pytest.raises(ZeroDivisionError) as raised:
        arrived.function()
    theirs = [(entry.path, entry.lineno, entry.name) for entry in raised.traceback[1:]]
    assert {str(path) for path, _, _ in theirs} == {__file__}
    line = train.__code__.co_firstlineno
    assert theirs[0] == (Path(__file__), line + 4, "train")
    assert theirs[1] == (Path(__file__), line + 2, "step")
    assert theirs[-1] == (Path(__file__), line + 2, "<lambda>")


def list_unsendable():
    """Return payloads that cannot be pickled, by the part that prevents this."""
    fine, own = 1, threading.Lock()

    def use_input(data): ...

    def use_global():
        return LOCK

    lock = "cannot pickle '_thread.lock' object"
    return {
        f"the input 'data' is a lock: {lock}": payload(use_input, size=1, data=own),
        f"the variable 'own' around it is a lock: {lock}": payload(lambda: (fine, own)),
        f"the global 'LOCK' is a lock: {lock}": payload(use_global),
        f"the global 'MODEL' is a SimpleNamespace: {lock}": payload(lambda: MODEL.lock),
    }


def test_object_that_cannot_be_pickled_is_named():
    for culprit, sent in list_unsendable().items():
        assert refusal(sent) == (
            f"flow.train cannot be sent to its worker processes: {culprit}. "
            'Make it inside the function, or use start_method="fork"'
        )


def test_callable_without_code_is_sent_or_rejected():
    assert pickle.loads(payloads.encode_payload(payload(len), "flow.train")).function is len
    assert "cannot be sent to its worker processes" in refusal(payload(threading.Lock().acquire))


@dataclasses.dataclass
class Epoch:
    losses: np.ndarray
    name: str


def is_equal(arrived, sent):
    return (arrived.dtype, arrived.shape) == (sent.dtype, sent.shape) and bool((arrived == sent).all())


def test_result_keeps_its_decks_and_metadata(tmp_path):
    arrived = handed_over(ElasticWorkerResult(3, [Deck("curves", "<svg/>")], None), tmp_path)
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


def test_shared_array_is_returned_once_and_is_writable(tmp_path):
    losses = np.arange(4 * MANY)
    arrived = handed_over({"all": [losses, losses], "epoch": Epoch(losses, "first")}, tmp_path)
    arrived["all"][0][7] = -1
    assert (arrived["all"][1][7], arrived["epoch"].losses[7], arrived["epoch"].name) == (-1, -1, "first")
    assert losses[7] == 7


def test_result_that_cannot_be_pickled_leaves_no_file(tmp_path):
    with pytest.raises(TypeError, match="generator"):
        result.save((number for number in range(3)), tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_result_larger_than_the_room_in_its_directory_uses_the_workspace(tmp_path, monkeypatch):
    # A test cannot fill a file system.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10 * MANY}))
    sent = np.arange(2 * MANY)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    result.save(sent, tmp_path, workspace)
    assert [path.stat().st_size > sent.nbytes for path in workspace.iterdir()] == [True]
    assert is_equal(result.load(tmp_path), sent)
    assert list(workspace.iterdir()) == []
