"""What a value in a config must look like.

A reader takes what the author wrote and gives back what the config keeps, or raises `Wrong` with
what would be right. Nothing here knows a config class; `config` lists which field is read by which
reader.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from operator import index
from typing import Any, Final, TypeAlias, TypeVar

from flytekit import ImageSpec

from flytekitplugins.kfpytorch.problems import Problem, Wrong, nearest, wrong
from kfpytorch_common import labels

E = TypeVar("E", bound=Enum)
Reader: TypeAlias = Callable[[object], object]

# Counts travel as int32 (flyteidl's kubeflow protos, the operator's Go types).
INT32_MAX: Final = 2**31 - 1


def optional(reader: Reader) -> Reader:
    """Read with `reader`, or ``None`` where nothing was said."""
    return lambda value: None if value is None else reader(value)


def count(low: int) -> Reader:
    """A whole number from `low` on; a bool is none."""

    def read(value: object) -> int:
        try:
            number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
        except TypeError:
            number = None
        if number is None or number < low:
            raise wrong(value, f"must be a whole number from {low} on")
        if number > INT32_MAX:
            raise wrong(value, f"must be at most {INT32_MAX} (it travels as int32)")
        return number

    return read


def processes(value: object) -> object:
    """Read a number of processes on a node, or a word of ``torchrun`` for it."""
    if isinstance(value, str):
        if value in PROCESSES:
            return value
        raise wrong(value, f"must be a whole number from 1 on, or {_PROCESSES}{nearest(value, PROCESSES)}")
    return count(low=1)(value)


PROCESSES: Final = ("auto", "gpu", "cpu")
_PROCESSES: Final = "'auto', 'gpu' or 'cpu'"


def flag(value: object) -> bool:
    """True or False; 1 and 0 as well, but no text: ``"false"`` would be true."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise wrong(value, "must be True or False")


def seconds(value: object) -> int | float:
    """A positive, finite number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return value
    raise wrong(value, "must be a number of seconds above 0")


def text(value: object) -> object:
    """A name; an empty one says nothing."""
    if isinstance(value, str) and value.strip():
        return value
    raise wrong(value, "must be a name as text")


def priority_class(value: object) -> object:
    """The name of a PriorityClass."""
    if isinstance(value, str) and labels.is_subdomain(value):
        return value
    raise wrong(value, f"must be the name of a PriorityClass: {labels.SUBDOMAIN}")


def string(value: object) -> object:
    """Text, also an empty one."""
    if isinstance(value, str):
        return value
    raise wrong(value, "must be text")


def whole(value: object) -> object:
    """A whole number, of any sign."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong(value, "must be a whole number")


def as_mapping(value: object) -> Mapping[Any, object] | None:
    """A dict, or what a model of kubernetes says, by the names of its fields in Python."""
    names = getattr(value, "attribute_map", None)
    if isinstance(names, Mapping):
        said = {name: getattr(value, name) for name in names}
        return {name: item for name, item in said.items() if item is not None}
    return value if isinstance(value, Mapping) else None


def unwritable(value: object, path: str = "") -> Iterator[Problem]:
    """What in a part of a manifest could not be written as JSON."""
    said = as_mapping(value)
    if said is not None:
        for key, item in said.items():
            if isinstance(key, str):
                yield from unwritable(item, f"{path}.{key}" if path else key)
            else:
                yield Problem(path, key, "a key must be text")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from unwritable(item, f"{path}[{place}]")
    elif not (value is None or isinstance(value, (str, int))) and not _is_finite(value):
        yield Problem(path, value, "must be text, a number, a list or a dict, as in a manifest")


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def one_of(*known: str) -> Reader:
    """One of a few words."""

    def read(value: object) -> object:
        if isinstance(value, str) and value in known:
            return value
        raise wrong(value, f"must be {' or '.join(map(repr, known))}{nearest(value, known)}")

    return read


def member(cls: type[E], aliases: Mapping[str, E]) -> Reader:
    """A member of an enum, or its name as text: any case, with or without underscores.

    Args:
        cls: The enum.
        aliases: Further names, letters only and in lower case, such as those of Kubernetes.
    """
    names = {_letters(item.name): item for item in cls} | dict(aliases)

    def read(value: object) -> E:
        if isinstance(value, cls):
            return value
        found = (
            names.get(_letters(value).removeprefix(cls.__name__.lower())) if isinstance(value, str) else None
        )
        if found is None:
            choices = ", ".join(f"{cls.__name__}.{item.name}" for item in cls)
            raise wrong(value, f"must be one of {choices}, or the name as text{nearest(value, list(names))}")
        return found

    return read


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]+", "", text.lower())


def image(value: object) -> object:
    """The name of an image, or flytekit's description of one."""
    if isinstance(value, (str, ImageSpec)):
        return value
    raise wrong(value, "must be the name of an image or an ImageSpec")


def nodes(value: object) -> object:
    """A number of nodes: ``2``, ``"2"``, or a range ``"2:4"``. Kept as it was written."""
    if isinstance(value, str):
        low, _, high = value.partition(":")
        if _is_count(low) and (":" not in value or (_is_count(high) and int(low) <= int(high))):
            return value
    elif not isinstance(value, bool) and hasattr(value, "__index__"):
        return count(low=1)(value)
    raise wrong(value, "must be a number of nodes from 1 on, or a range 'low:high' such as '2:4'")


def _is_count(text: str) -> bool:
    return re.fullmatch(r"\s*\+?[0-9]+\s*", text) is not None and 1 <= int(text) <= INT32_MAX


# What torch's c10d rendezvous reads (torch.distributed.elastic.rendezvous, 2.3 to 2.15).
_RDZV_POSITIVE: Final = (
    "timeout",
    "join_timeout",
    "last_call_timeout",
    "close_timeout",
    "heartbeat_timeout",
    "read_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
)
_RDZV_KNOWN: Final = (*_RDZV_POSITIVE, "cas_backoff_max_seconds", "is_host", "rank", "store_type")
# Those that the plugin passes itself, next to `rdzv_configs`.
_RDZV_TAKEN: Final = ("backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr")


def rendezvous(value: object) -> object:
    """What torch's rendezvous is told, kept as it is.

    A key that is near no known one is torch's business: it may be newer than this table.
    """
    if not isinstance(value, Mapping):
        raise wrong(value, "must be a dict such as {'timeout': 900, 'join_timeout': 900}")
    problems = [problem for key, item in value.items() for problem in _rendezvous_problems(key, item)]
    if problems:
        raise Wrong(*problems)
    return value


def _rendezvous_problems(key: object, value: object) -> Iterator[Problem]:
    path = f"[{key!r}]"
    if not isinstance(key, str):
        yield Problem(path, value, "a key must be text")
    elif key in _RDZV_TAKEN:
        yield Problem(path, value, "is set by the plugin; leave it out")
    elif key in _RDZV_POSITIVE and not _is_positive_int(value):
        yield Problem(path, value, "must be a whole number above 0 (the time-outs are in seconds)")
    elif key not in _RDZV_KNOWN and (hint := nearest(key, _RDZV_KNOWN, cutoff=0.8)):
        yield Problem(path, value, f"torch would ignore this key{hint}")


def _is_positive_int(value: object) -> bool:
    # torch reads them with int(), so "900" and 900.0 are as good as 900.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    try:
        return int(value) > 0
    except (ValueError, OverflowError):
        return False
