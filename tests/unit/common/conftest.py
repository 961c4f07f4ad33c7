import contextlib

import pytest
from processes import ForkCaller

from kfpytorch_common.forkserver import launch


@pytest.fixture
def connect():
    """Yield a function that returns a caller of a server; the server stops at the end."""
    with contextlib.ExitStack() as ending:
        yield lambda server: ForkCaller(server, ending)


@pytest.fixture(params=["forked", "fresh interpreters"])
def caller(request, monkeypatch, connect):
    """Return a caller with a server: a fork, or a new interpreter that does not fork."""
    if request.param == "forked":
        return connect(launch.start_forked_server(()))
    monkeypatch.setenv("FLYTE_KFPYTORCH_FORK", "0")
    return connect(launch.start_fresh_server(["json"]))
