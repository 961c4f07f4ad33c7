"""Fork servers of every kind, for the tests in this folder."""

import contextlib
from collections.abc import Iterator

import pytest
from processes import ForkCaller

from kfpytorch_common.forkserver import launch

FORKED, INTERPRETERS = "forked", "fresh interpreters"


@pytest.fixture(params=[FORKED, INTERPRETERS])
def caller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkCaller]:
    """Yield a caller with a server: a fork, or a new interpreter that does not fork."""
    if request.param == INTERPRETERS:
        monkeypatch.setenv("FLYTE_KFPYTORCH_FORK", "0")
    with contextlib.ExitStack() as ending:
        server = (
            launch.start_forked_server(()) if request.param == FORKED else launch.start_fresh_server(["json"])
        )
        yield ForkCaller(server, ending)
