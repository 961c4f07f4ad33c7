"""Names of flytekit's own plugin that other packages import, implemented with this package."""

from collections.abc import Mapping
from typing import Any

from flytekitplugins.kfpytorch.error_handling import create_recoverable_error_file
from flytekitplugins.kfpytorch.worker import loading, replica
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
    payload = loading.Payload(function, kwargs, raw_output_prefix, checkpoint_dest, checkpoint_src)
    try:
        return replica.call_function(payload)
    except FlyteRecoverableException:
        create_recoverable_error_file()
        raise
