"""Names of upstream that others import, over what stands in their place."""

from collections.abc import Mapping
from typing import Any

from flytekitplugins.kfpytorch.worker import recovery, replica
from flytekitplugins.kfpytorch.worker.result import ElasticWorkerResult


def spawn_helper(
    fn: bytes,
    raw_output_prefix: str,
    checkpoint_dest: str | None,
    checkpoint_src: str | None,
    kwargs: Mapping[str, Any],
) -> ElasticWorkerResult:
    """Run a cloudpickled function in a Flyte context of its own.

    Args:
        fn: The function, written by ``cloudpickle.dumps``.
        raw_output_prefix: Where offloaded data goes.
        checkpoint_dest: Where checkpoints are written; None for none.
        checkpoint_src: Where an earlier attempt left its checkpoint; None for none.
        kwargs: The function's arguments.

    Returns:
        The value, the decks and the metadata.
    """
    import cloudpickle
    from flytekit.exceptions.user import FlyteRecoverableException

    payload = replica.Payload(
        cloudpickle.loads(fn), kwargs, raw_output_prefix, checkpoint_dest, checkpoint_src
    )
    try:
        return replica.call(payload)
    except FlyteRecoverableException:
        recovery.create_recoverable_error_file()
        raise
