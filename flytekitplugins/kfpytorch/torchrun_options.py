"""Check the settings of `Elastic` that are options of torchrun: nodes, processes and rendezvous."""

import re
from collections.abc import Iterator
from typing import Final

from flytekitplugins.kfpytorch.problems import ConfigProblem, build_invalid_value, suggest_name
from flytekitplugins.kfpytorch.validators import INT32_MAX, build_mapping_reader, read_positive

_NODES: Final = re.compile(r"\s*\+?([0-9]{1,10})\s*(?::\s*\+?([0-9]{1,10})\s*)?")


def read_processes(value: object) -> object:
    """Return a valid ``nproc_per_node``; raise `InvalidValue` for any other value.

    A number of processes is valid, and the words of ``torchrun``: ``auto``, ``gpu`` and ``cpu``.
    """
    if not isinstance(value, str):
        return read_positive(value)
    if value not in ("auto", "gpu", "cpu"):
        raise build_invalid_value(value, "must be a whole number of at least 1, or 'auto', 'gpu' or 'cpu'")
    return value


def read_nodes(value: object) -> object:
    """Return a valid ``nnodes``; raise `InvalidValue` for any other value.

    For example, ``2``, ``"2"`` and the range ``"2:4"`` are valid. Text is not converted to a number.
    """
    if not isinstance(value, str):
        return read_positive(value)
    match = _NODES.fullmatch(value)
    if match is None or not 1 <= int(match[1]) <= int(match[2] or match[1]) <= INT32_MAX:
        remedy = "must be a number of nodes of at least 1, or a range 'low:high' such as '2:4'"
        raise build_invalid_value(value, remedy)
    return value


# The keys that torch's c10d rendezvous reads (torch.distributed.elastic.rendezvous, 2.3 to 2.15).
_RDZV_POSITIVE: Final = (
    "timeout", "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout", "read_timeout",
    "keep_alive_interval", "keep_alive_max_attempt",
)  # fmt: skip
_RDZV_KNOWN: Final = (*_RDZV_POSITIVE, "cas_backoff_max_seconds", "is_host", "rank", "store_type")
# The keys that the plugin sets, so that an author cannot set them.
_RDZV_TAKEN: Final = ("backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr")


def _check_rendezvous_key(key: object, value: object) -> Iterator[ConfigProblem]:
    if not isinstance(key, str):
        yield ConfigProblem("", value, "a key must be text")
    elif key in _RDZV_TAKEN:
        yield ConfigProblem("", value, "is set by the plugin; leave it out")
    elif key in _RDZV_POSITIVE and not _is_positive_int(value):
        yield ConfigProblem("", value, "must be a whole number above 0 (the time-outs are in seconds)")
    # A key that resembles no known key is accepted, because a newer torch may read it.
    elif key not in _RDZV_KNOWN and (hint := suggest_name(key, _RDZV_KNOWN, cutoff=0.8)):
        yield ConfigProblem("", value, f"torch would ignore this key{hint}")


read_rendezvous: Final = build_mapping_reader(
    _check_rendezvous_key, "must be a dict such as {'timeout': 900, 'join_timeout': 900}"
)


def _is_positive_int(value: object) -> bool:
    # torch converts the values with int(), so "900" and 900.0 are valid as well.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    try:
        return int(value) > 0
    except (ValueError, OverflowError):
        return False
