"""Readers for single values of a config."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from operator import index
from typing import Any, Final, TypeAlias, TypeVar

from flytekit import ImageSpec

from flytekitplugins.kfpytorch.problems import ConfigProblem, InvalidValue, build_invalid_value, suggest_name
from kfpytorch_common import labels

E = TypeVar("E", bound=Enum)
Reader: TypeAlias = Callable[[object], object]

# Counts are transmitted as int32 (flyteidl's kubeflow protos, the operator's Go types).
INT32_MAX: Final = 2**31 - 1


def build_optional_reader(reader: Reader) -> Reader:
    """Return a reader that accepts ``None`` and passes every other value to `reader`."""
    return lambda value: None if value is None else reader(value)


def build_count_reader(low: int) -> Reader:
    """Return a reader for whole numbers of at least `low`; a bool is not a number."""

    def read(value: object) -> int:
        try:
            number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
        except TypeError:
            number = None
        if number is None or number < low:
            raise build_invalid_value(value, f"must be a whole number of at least {low}")
        if number > INT32_MAX:
            raise build_invalid_value(value, f"must be at most {INT32_MAX} (it is sent as int32)")
        return number

    return read


def read_processes(value: object) -> object:
    """Read a number of processes per node, or one of the words that ``torchrun`` accepts."""
    if isinstance(value, str):
        if value in PROCESSES:
            return value
        raise build_invalid_value(
            value, f"must be a whole number of at least 1, or {_PROCESSES}{suggest_name(value, PROCESSES)}"
        )
    return build_count_reader(low=1)(value)


PROCESSES: Final = ("auto", "gpu", "cpu")
_PROCESSES: Final = "'auto', 'gpu' or 'cpu'"


def read_flag(value: object) -> bool:
    """Read True or False, also as 1 or 0. Text is invalid because ``"false"`` would be true."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise build_invalid_value(value, "must be True or False")


def read_seconds(value: object) -> int | float:
    """Read a positive, finite number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return value
    raise build_invalid_value(value, "must be a number of seconds above 0")


def read_name(value: object) -> object:
    """Read a name, which must not be blank."""
    if isinstance(value, str) and value.strip():
        return value
    raise build_invalid_value(value, "must be a name as text")


def read_priority_class(value: object) -> object:
    """Read the name of a PriorityClass."""
    if isinstance(value, str) and labels.is_subdomain(value):
        return value
    raise build_invalid_value(value, f"must be the name of a PriorityClass: {labels.SUBDOMAIN}")


def read_text(value: object) -> object:
    """Read text, which may be empty."""
    if isinstance(value, str):
        return value
    raise build_invalid_value(value, "must be text")


def read_int(value: object) -> object:
    """Read a whole number, which may be negative."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise build_invalid_value(value, "must be a whole number")


def find_mapping(value: object) -> Mapping[Any, object] | None:
    """Return a dict as it is, a kubernetes model as a dict of its attributes that are set, or None."""
    names = getattr(value, "attribute_map", None)
    if isinstance(names, Mapping):
        attributes = {name: getattr(value, name) for name in names}
        return {name: item for name, item in attributes.items() if item is not None}
    return value if isinstance(value, Mapping) else None


def check_json_value(value: object, path: str = "") -> Iterator[ConfigProblem]:
    """Yield a problem for each value within `value` that cannot be written as JSON in a manifest."""
    mapping = find_mapping(value)
    if mapping is not None:
        for key, item in mapping.items():
            if isinstance(key, str):
                yield from check_json_value(item, f"{path}.{key}" if path else key)
            else:
                yield ConfigProblem(path, key, "a key must be text")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from check_json_value(item, f"{path}[{place}]")
    elif not (value is None or isinstance(value, (str, int))) and not _is_finite(value):
        yield ConfigProblem(path, value, "must be text, a number, a list or a dict, as in a manifest")


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def build_choice_reader(*known: str) -> Reader:
    """Return a reader that accepts only the given words."""

    def read(value: object) -> object:
        if isinstance(value, str) and value in known:
            return value
        raise build_invalid_value(
            value, f"must be {' or '.join(map(repr, known))}{suggest_name(value, known)}"
        )

    return read


def build_enum_reader(cls: type[E], aliases: Mapping[str, E]) -> Reader:
    """Return a reader for a member of an enum or its name, whose case and underscores do not matter.

    Args:
        cls: The enum.
        aliases: Further names, such as those of Kubernetes: letters only, in lower case.
    """
    names = {_strip_non_letters(item.name): item for item in cls} | dict(aliases)

    def read(value: object) -> E:
        if isinstance(value, cls):
            return value
        found = (
            names.get(_strip_non_letters(value).removeprefix(cls.__name__.lower()))
            if isinstance(value, str)
            else None
        )
        if found is None:
            choices = ", ".join(f"{cls.__name__}.{item.name}" for item in cls)
            raise build_invalid_value(
                value, f"must be one of {choices}, or the name as text{suggest_name(value, list(names))}"
            )
        return found

    return read


def _strip_non_letters(text: str) -> str:
    return re.sub(r"[^a-z]+", "", text.lower())


def read_image(value: object) -> object:
    """Read the name of an image, or an ImageSpec."""
    if isinstance(value, (str, ImageSpec)):
        return value
    raise build_invalid_value(value, "must be the name of an image or an ImageSpec")


def read_nodes(value: object) -> object:
    """Read a number of nodes: ``2``, ``"2"``, or a range ``"2:4"``. A text is kept unchanged."""
    if isinstance(value, str):
        low, _, high = value.partition(":")
        if _is_count(low) and (":" not in value or (_is_count(high) and int(low) <= int(high))):
            return value
    elif not isinstance(value, bool) and hasattr(value, "__index__"):
        return build_count_reader(low=1)(value)
    raise build_invalid_value(
        value, "must be a number of nodes of at least 1, or a range 'low:high' such as '2:4'"
    )


def _is_count(text: str) -> bool:
    return re.fullmatch(r"\s*\+?[0-9]+\s*", text) is not None and 1 <= int(text) <= INT32_MAX


# The keys that torch's c10d rendezvous reads (torch.distributed.elastic.rendezvous, 2.3 to 2.15).
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
# The plugin sets these itself.
_RDZV_TAKEN: Final = ("backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr")


def read_rendezvous(value: object) -> object:
    """Read the configuration of torch's rendezvous, and keep it unchanged.

    An unknown key that resembles no known one is accepted, because a newer torch may know it.
    """
    if not isinstance(value, Mapping):
        raise build_invalid_value(value, "must be a dict such as {'timeout': 900, 'join_timeout': 900}")
    problems = [problem for key, item in value.items() for problem in _check_rendezvous_key(key, item)]
    if problems:
        raise InvalidValue(*problems)
    return value


def _check_rendezvous_key(key: object, value: object) -> Iterator[ConfigProblem]:
    path = f"[{key!r}]"
    if not isinstance(key, str):
        yield ConfigProblem(path, value, "a key must be text")
    elif key in _RDZV_TAKEN:
        yield ConfigProblem(path, value, "is set by the plugin; leave it out")
    elif key in _RDZV_POSITIVE and not _is_positive_int(value):
        yield ConfigProblem(path, value, "must be a whole number above 0 (the time-outs are in seconds)")
    elif key not in _RDZV_KNOWN and (hint := suggest_name(key, _RDZV_KNOWN, cutoff=0.8)):
        yield ConfigProblem(path, value, f"torch would ignore this key{hint}")


def _is_positive_int(value: object) -> bool:
    # torch converts the values with int(), so "900" and 900.0 are valid as well.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    try:
        return int(value) > 0
    except (ValueError, OverflowError):
        return False
