"""The names of the module `error_handling` of flytekit's own plugin; `worker.recovery` defines them."""

from flytekitplugins.kfpytorch.worker.recovery import (
    RECOVERABLE_ERROR_FILE_NAME,
    create_recoverable_error_file,
    is_recoverable_worker_error,
)

__all__ = ["RECOVERABLE_ERROR_FILE_NAME", "create_recoverable_error_file", "is_recoverable_worker_error"]
