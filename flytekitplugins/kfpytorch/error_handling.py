"""Mark a failure of a worker as recoverable; the function names are those of flytekit's own plugin.

torch passes an exception to the elastic agent as text, which does not show whether its class is a subclass of
``FlyteRecoverableException``. The worker therefore creates a marker file next to torch's error file.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

RECOVERABLE_ERROR_FILE_NAME: Final = "recoverable_error"


def create_recoverable_error_file() -> None:
    """Mark the failure of this worker as recoverable. Repeated calls have no further effect.

    Raises:
        ValueError: If ``TORCHELASTIC_ERROR_FILE`` is not set, as in a process that is not a torch worker.
    """
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file is None:
        raise ValueError(
            "the environment variable TORCHELASTIC_ERROR_FILE is not set: this is not a worker of torch "
            "elastic"
        )
    _get_marker_path(error_file).write_text("", encoding="utf-8")


def is_recoverable_worker_error(failure: "ProcessFailure") -> bool:
    """True if the failed worker has created the file ``recoverable_error`` next to torch's error file."""
    return _get_marker_path(failure.error_file).exists()


def _get_marker_path(error_file: str) -> Path:
    return Path(error_file).parent / RECOVERABLE_ERROR_FILE_NAME
