"""How a worker tells its agent that a failure is worth another attempt.

torch hands the agent no exception objects, only text, in which a subclass of
``FlyteRecoverableException`` cannot be recognised. So the worker, which has the object, leaves a
marker next to the error file that torch gave it. Standard library only: it runs in every replica.
"""

import os
from pathlib import Path
from typing import Final, Protocol

RECOVERABLE_ERROR_FILE_NAME: Final = "recoverable_error"


class Failure(Protocol):
    """The one thing asked of torch's ``ProcessFailure``."""

    error_file: str


def create_recoverable_error_file() -> None:
    """Mark this worker's failure as recoverable; marking it twice is marking it once.

    Raises:
        ValueError: If ``TORCHELASTIC_ERROR_FILE`` is not set, that is, outside of a torch worker.
    """
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file is None:
        raise ValueError(
            "the environment variable TORCHELASTIC_ERROR_FILE is not set: this is no worker of torch elastic"
        )
    _marker(error_file).write_text("", encoding="utf-8")


def is_recoverable_worker_error(failure: Failure) -> bool:
    """Whether the worker that failed has marked its failure as recoverable.

    Args:
        failure: torch's ``ProcessFailure`` (or anything else with an ``error_file``).

    Returns:
        True if the marker lies next to the worker's error file.
    """
    return _marker(failure.error_file).exists()


def _marker(error_file: str) -> Path:
    return Path(error_file).parent / RECOVERABLE_ERROR_FILE_NAME
