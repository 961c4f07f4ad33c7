"""The options of a job that the spec of a TrainJob cannot contain; an annotation of the job stores them."""

from functools import lru_cache
from typing import Final

import msgspec

from backend_plugin.core.names import PREFIX

ANNOTATION: Final = f"{PREFIX}train-job"


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Options of a TrainJob that its spec cannot contain. An annotation stores them.

    The defaults apply to a job that another client created.
    """

    min_nodes: int | None = None
    """The number of nodes with which an elastic job starts; None if it is not elastic."""
    max_restarts: int = 0
    """The number of restarts after failures."""
    max_disruptions: int | None = None
    """The number of restarts after disruptions; None for no limit."""
    named_runtime: bool = False
    """True if the author names the runtime, so that the restart limits of the job are unknown."""
    succeeded_indexes: str | None = None
    """The indexes of the nodes that must succeed for the job to succeed; None for all nodes."""
    launcher: bool = False
    """True if the first node, which runs mpirun, has a Job of its own."""
    ttl_seconds: int | None = None
    """The time after its end at which the server deletes the job, in seconds; None for never."""


NONE: Final = JobOptions()
_DECODER: Final = msgspec.json.Decoder(JobOptions)


def encode(options: JobOptions) -> str:
    """Return the value of the annotation `ANNOTATION` of a TrainJob, which stores these options."""
    return msgspec.json.encode(options).decode()


@lru_cache(maxsize=1_024)
def decode(annotation: str) -> JobOptions:
    """Return the options in the value of `ANNOTATION` of a TrainJob; the defaults if it is invalid."""
    try:
        return _DECODER.decode(annotation) if annotation else NONE
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return NONE
