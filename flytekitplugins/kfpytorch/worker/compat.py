"""Names of flytekit's own plugin that other packages import, implemented with this package."""

from collections.abc import Mapping
from typing import Any

from flytekitplugins.kfpytorch.error_handling import create_recoverable_error_file
from flytekitplugins.kfpytorch.worker import exceptions, flyte_context, loading, replica
from flytekitplugins.kfpytorch.worker.result import ElasticWorkerResult


def spawn_helper(
    fn: bytes,
    raw_output_prefix: str,
    checkpoint_dest: str | None,
    checkpoint_src: str | None,
    kwargs: Mapping[str, Any],
) -> ElasticWorkerResult:
    """Run a cloudpickled function in a separate Flyte context, and return its value, decks and metadata.

    `checkpoint_src` is the URL of the checkpoint of an earlier attempt; None if there was none.
    """
    import cloudpickle
    from flytekit.exceptions.user import FlyteRecoverableException

    function = cloudpickle.loads(fn)
    settings = loading.Payload(function, kwargs, raw_output_prefix, checkpoint_dest, checkpoint_src)
    try:
        with flyte_context.enter_execution(settings, None):
            return replica.compute_result(function, kwargs)
    except exceptions.UserError as caught:
        error = caught.error
    if exceptions.is_instance(error, FlyteRecoverableException):
        create_recoverable_error_file()
    raise error  # Outside the handler, so that `UserError` does not become its context.
