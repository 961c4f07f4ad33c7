"""The Flyte context in which a worker calls the user's function."""

import contextlib
import tempfile
from collections.abc import Iterator

from flytekitplugins.kfpytorch.worker.loading import Parcel, Payload


@contextlib.contextmanager
def enter_execution(settings: Payload | Parcel, workspace: str | None) -> Iterator[None]:
    """Enter a separate Flyte context, as in a pod, with the output prefix and checkpoints of `settings`.

    flytekit writes its local files into `workspace`; None selects flytekit's default directory.
    """
    from flytekit.bin.entrypoint import setup_execution
    from flytekit.core.context_manager import FlyteContextManager
    from flytekit.core.data_persistence import FileAccessProvider

    with contextlib.ExitStack() as context:
        if workspace:
            access = FileAccessProvider(
                local_sandbox_dir=workspace, raw_output_prefix=settings.raw_output_prefix
            )
            changed = FlyteContextManager.current_context().with_file_access(access)
            context.enter_context(FlyteContextManager.with_context(changed))
        execution = setup_execution(
            raw_output_data_prefix=settings.raw_output_prefix,
            checkpoint_path=settings.checkpoint_dest,
            prev_checkpoint=settings.checkpoint_src,
        )
        before = tempfile.tempdir
        tempfile.tempdir = workspace or before
        try:
            context.enter_context(execution)
        finally:
            tempfile.tempdir = before
        yield


@contextlib.contextmanager
def set_working_directory(workspace: str) -> Iterator[None]:
    """Within the `with` block, use a new directory in `workspace` as Flyte's working directory.

    It is set in the Flyte context that this worker has inherited from the process that called the task.
    """
    from flytekit.core.context_manager import FlyteContextManager

    context = FlyteContextManager.current_context()
    parameters = context.user_space_params.builder()
    parameters.working_dir = tempfile.mkdtemp(prefix="rank-", dir=workspace)
    state = context.execution_state.with_params(user_space_params=parameters.build())
    with FlyteContextManager.with_context(context.with_execution_state(state)):
        yield
