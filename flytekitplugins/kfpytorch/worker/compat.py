"""Names of flytekit's own plugin that other packages import, implemented with this package."""

from collections.abc import Mapping
from typing import Any

from flytekitplugins.kfpytorch.worker import loading, recovery, replica
from flytekitplugins.kfpytorch.worker.result import ElasticWorkerResult


def spawn_helper(
    fn: bytes,
    raw_output_prefix: str,
    checkpoint_dest: str | None,
    checkpoint_src: str | None,
    kwargs: Mapping[str, Any],
) -> ElasticWorkerResult:
    """Run a cloudpickled function in a separate Flyte context.

    Args:
        fn: The function, as written by ``cloudpickle.dumps``.
        raw_output_prefix: URL prefix for offloaded data.
        checkpoint_dest: URL for checkpoints; None without checkpoints.
        checkpoint_src: URL of the checkpoint of an earlier attempt; None if there was none.
        kwargs: The arguments of the function.

    Returns:
        The value, the decks and the metadata.
    """
    import cloudpickle
    from flytekit.exceptions.user import FlyteRecoverableException

    function = cloudpickle.loads(fn)
    payload = loading.Payload(function, kwargs, raw_output_prefix, checkpoint_dest, checkpoint_src)
    try:
        return replica.call_function(payload)
    except FlyteRecoverableException:
        recovery.create_recoverable_error_file()
        raise
