"""The names of upstream's module `error_handling`; `worker.recovery` defines them."""

from flytekitplugins.kfpytorch.worker.recovery import (
    RECOVERABLE_ERROR_FILE_NAME,
    create_recoverable_error_file,
    is_recoverable_worker_error,
)

__all__ = ["RECOVERABLE_ERROR_FILE_NAME", "create_recoverable_error_file", "is_recoverable_worker_error"]
