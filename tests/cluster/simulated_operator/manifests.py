"""Random PyTorchJobs for API admission: valid jobs whose specs have added, removed or odd fields."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from rig.api import Manifest
from whole_job import WHOLE_JOB

from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.schema_check import parse_types
from backend_plugin.embedded.operators.pytorchjob.job_schema import JOB_PARTS

NAMESPACE: Final = "default"
_ODD: Final = (
    None,
    True,
    0,
    3,
    2.0,
    "",
    "x",
    "1Gi",
    [],
    {},
    [None],
    {"name": "x"},
    [{"name": "x"}],
    {"x": "y"},
)
_SCALARS: Final = {
    "string": ("a", "b", "x1", "/a", "Always", "IfNotPresent", "a.b/c", "TCP", "", "a b"),
    "bool": (True, False),
    "int32": (0, 1, 2, 80, -1, 70000),
    "int64": (0, 1, 30, -1, 2**33),
    "intstr": (80, "http", 0, "80"),
    "quantity": ("1", "500m", 2, "1Gi", "0.5", "-1", "1e3"),
}
_TYPES: Final = parse_types(PARTS + JOB_PARTS)
# The types of required fields end in `*`, and those of some optional ones in `!`.
_NEEDED: Final = 0.95
# The probability of other fields decreases with depth, because types of pods are nested deeply.
_MORE: Final = (0.5, 0.35, 0.25, 0.15, 0.1)


def manifest(chance: Random) -> Manifest:
    """Return a PyTorchJob that may be invalid."""
    # The copy has no parts that are shared between several places.
    spec = json.loads(json.dumps(WHOLE_JOB["spec"]))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        chance.choice((_odd, _remove_field, _add_field, _add_field, _add_field))(spec, chance)
    return {**WHOLE_JOB, "spec": spec}


def _odd(spec: Manifest, chance: Random) -> None:
    holder, key = chance.choice(list(_places(spec)))
    holder[key] = copy.deepcopy(chance.choice(_ODD))  # The next change may edit this value.


def _remove_field(spec: Manifest, chance: Random) -> None:
    holder, key = chance.choice(list(_places(spec)))
    del holder[key]


def _add_field(spec: Manifest, chance: Random) -> None:
    """Set a field of the right type in an object of a known type."""
    holder, part = chance.choice(list(_parts(spec, "PyTorchJobSpec")))
    name = chance.choice([*_TYPES[part]])
    holder[name] = _value(_TYPES[part][name], chance, 0)


def _value(kind: str, chance: Random, depth: int) -> Any:
    kind = kind.rstrip("!*")
    if chance.random() < 0.01:
        return chance.choice(_ODD)
    if kind in _SCALARS:
        return chance.choice(_SCALARS[kind])
    if kind.startswith("["):
        return [_value(kind[1:-1], chance, depth + 1) for _ in range(chance.choice((0, 1, 1, 2)))]
    if kind.startswith("{"):
        return {key: _value(kind[1:-1], chance, depth + 1) for key in chance.sample(("a", "b.c/d", "cpu"), 1)}
    more = _MORE[min(depth, len(_MORE) - 1)]
    return {
        name: _value(each, chance, depth + 1)
        for name, each in _TYPES[kind].items()
        if chance.random() < (_NEEDED if each.endswith(("!", "*")) else more)
    }


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every value in a document as its container and key."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in list(children):
        yield value, key
        yield from _places(child)


def _parts(value: Any, kind: str) -> Iterator[tuple[Manifest, str]]:
    """Yield the objects of known types, with their type."""
    if kind.startswith("[") and isinstance(value, list):
        for each in value:
            yield from _parts(each, kind[1:-1])
    elif kind.startswith("{") and isinstance(value, dict):
        for each in value.values():
            yield from _parts(each, kind[1:-1])
    elif kind in _TYPES and isinstance(value, dict):
        yield value, kind
        for name, each in value.items():
            yield from _parts(each, _TYPES[kind].get(name, "").rstrip("!*"))
