"""A function is sent to other processes, or rejected with the name of the part that prevents this."""

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flytekitplugins.kfpytorch.worker import payloads
from flytekitplugins.kfpytorch.worker.loading import Payload

LOCK = threading.Lock()
MODEL = SimpleNamespace(lock=LOCK, size=3)


def payload(function: Callable[..., Any], **inputs: Any) -> Payload:
    return Payload(function, inputs, "s3://raw", None, None)


def refusal(sent: Payload) -> str:
    with pytest.raises(payloads.NotPicklable) as refused:
        payloads.encode_payload(sent, "flow.train")
    return str(refused.value)


def test_payload_is_equal_after_encoding_and_decoding() -> None:
    offset = 5

    def train(size: int) -> int:
        return size + offset

    arrived = pickle.loads(payloads.encode_payload(payload(train, size=3), "flow.train"))
    assert arrived.function(**arrived.inputs) == 8
    assert arrived == Payload(arrived.function, {"size": 3}, "s3://raw", None, None)


def test_code_pickled_by_value_keeps_its_file_names() -> None:
    def train() -> None:
        class Model:
            def step(self) -> None:
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


def list_unsendable() -> dict[str, Payload]:
    """Return payloads that cannot be pickled, by the part that prevents this."""
    fine, own = 1, threading.Lock()

    def use_input(data: Any) -> None: ...

    def use_global() -> Any:
        return LOCK

    lock = "cannot pickle '_thread.lock' object"
    return {
        f"the input 'data' is a lock: {lock}": payload(use_input, size=1, data=own),
        f"the variable 'own' around it is a lock: {lock}": payload(lambda: (fine, own)),
        f"the global 'LOCK' is a lock: {lock}": payload(use_global),
        f"the global 'MODEL' is a SimpleNamespace: {lock}": payload(lambda: MODEL.lock),
    }


def test_object_that_cannot_be_pickled_is_named() -> None:
    for culprit, sent in list_unsendable().items():
        assert refusal(sent) == (
            f"flow.train cannot be sent to its worker processes: {culprit}. "
            'Make it inside the function, or use start_method="fork"'
        )


def test_callable_without_code_is_sent_or_rejected() -> None:
    assert pickle.loads(payloads.encode_payload(payload(len), "flow.train")).function is len
    assert "cannot be sent to its worker processes" in refusal(payload(threading.Lock().acquire))
