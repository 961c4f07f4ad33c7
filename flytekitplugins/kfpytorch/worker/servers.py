"""The fork server of this process: started once, used by every launch that it suits."""

import os

from flytekitplugins.kfpytorch.worker.replica import Payload
from kfpytorch_common import prestart
from kfpytorch_common.forkserver import client

_server: client.Server | None = None


def shared() -> client.Server:
    """A server that has loaded torch and flytekit and no user's module.

    The one that was started ahead of time, or by an earlier launch; a new one when a variable that
    only a new interpreter reads has changed since.
    """
    global _server  # noqa: PLW0603 - one for the process: that is what makes the second launch quick.
    if _server is None:
        _server = prestart.take()
    if _server is not None and not _server.suits(os.environ):
        _server.stop()
        _server = None
    if _server is None:
        _server = client.start_fresh(prestart.PRELOAD)
    return _server


def of_this_process(payload: Payload) -> client.Server:
    """A server that is a fork of this process, for ``start_method="fork"``."""
    return client.start_forked((), payload)
