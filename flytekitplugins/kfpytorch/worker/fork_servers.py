"""The fork server of this process: a helper process that imports torch once and forks processes of runs."""

import contextlib
import os
from collections.abc import Iterator

from flytekitplugins.kfpytorch.worker.loading import Payload
from kfpytorch_common import prestart
from kfpytorch_common.forkserver import launch

_server: launch.ForkServer | None = None


@contextlib.contextmanager
def use_server(inherited: Payload | None) -> Iterator[launch.ForkServer]:
    """Yield the fork server for a run.

    If `inherited` is None, it is the server that all runs of this process share. Otherwise it is a new fork
    of this process, from which workers inherit the payload `inherited`.
    """
    if inherited is None:
        yield _get_shared_server()
        return
    server = launch.start_forked_server((), inherited)
    try:
        yield server
    finally:
        server.stop()


def _get_shared_server() -> launch.ForkServer:
    """Return a fork server that has loaded torch and flytekit and no module of the user.

    It is the server that `prestart` or an earlier run started. A new server replaces it if a variable that
    only a new interpreter reads has changed.
    """
    global _server  # noqa: PLW0603 - one server for the process makes later launches fast.
    if _server is None:
        _server = prestart.claim_server()
    if _server is not None and not _server.is_suitable(os.environ):
        _server.stop()
        _server = None
    if _server is None:
        _server = launch.start_fresh_server(prestart.PRELOAD)
    return _server
