"""What we must be able to rely on before we look into a pod's spec that somebody else wrote.

Lives here: which parts have which type. Does not: whether their values are good; the API server knows that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import shown
from backend_plugin.core.quantity import NotAQuantity, parse

Shape: TypeAlias = "type | str | list[Shape] | dict[str, Shape]"

_AMOUNT: Final = "quantity"
_ANY_KEY: Final = "*"
_OBJECT: Final[dict[str, Shape]] = {}
AMOUNTS: Final[Shape] = {_ANY_KEY: _AMOUNT}

_CONTAINER: Final[Shape] = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [{"name": str}],
    "envFrom": [_OBJECT],
    "resources": {"requests": AMOUNTS, "limits": AMOUNTS},
    "volumeMounts": [{"name": str, "mountPath": str}],
    "securityContext": _OBJECT,
    "restartPolicy": str,
}
_TERMS: Final[Shape] = {"nodeSelectorTerms": [{"matchExpressions": [_OBJECT], "matchFields": [_OBJECT]}]}
POD_SPEC: Final[Shape] = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [{"name": str}],
    "tolerations": [_OBJECT],
    "nodeSelector": {_ANY_KEY: str},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _TERMS}},
    "securityContext": _OBJECT,
    "dnsConfig": _OBJECT,
    "hostNetwork": bool,
    "restartPolicy": str,
    "serviceAccountName": str,
    "schedulerName": str,
}
POD_TEMPLATE: Final[dict[str, Shape]] = {
    "template": {
        "metadata": {"labels": {_ANY_KEY: str}, "annotations": {_ANY_KEY: str}},
        "spec": POD_SPEC,
    }
}


class _Amount:
    """Stands for a quantity where msgspec looks at types."""


def _type(shape: Shape) -> Any:
    """The same shape as a type that msgspec checks, much faster than problems are found."""
    if isinstance(shape, type):
        return shape
    if isinstance(shape, str):
        return _Amount
    if isinstance(shape, list):
        return list[_type(shape[0])]  # type: ignore[misc]
    if not shape or _ANY_KEY in shape:
        return dict[str, _type(shape[_ANY_KEY]) if shape else Any]  # type: ignore[misc]
    return msgspec.defstruct(
        "_Part", [(key, _type(inner) | msgspec.UnsetType, msgspec.UNSET) for key, inner in shape.items()]
    )


def _amount(_: type, value: Any) -> _Amount:
    if parse(amount_text(value)).nano < 0:
        raise NotAQuantity(value)
    return _Amount()


_TYPES: Final = {id(shape): _type(shape) for shape in (POD_SPEC, POD_TEMPLATE, AMOUNTS)}


def _is_good(value: Any, shape: Shape) -> bool:
    checked = _TYPES.get(id(shape))
    if checked is None:
        return False
    try:
        msgspec.convert(value, checked, dec_hook=_amount)
    except (msgspec.ValidationError, NotAQuantity):
        return False
    return True


_NAMES: Final[Mapping[type, tuple[str, str]]] = {
    str: ("is no text", "write it in quotes"),
    bool: ("is neither true nor false", "write true or false"),
}


def problems(value: Any, shape: Shape, path: str) -> list[Problem]:
    """Where a value is not of its shape; parts that have no shape may be anything."""
    if _is_good(value, shape):
        return []
    return list(_problems(value, shape, path))


def _problems(value: Any, shape: Shape, path: str) -> Iterator[Problem]:
    if isinstance(shape, type):
        if not isinstance(value, shape):
            yield _problem(path, value, *_NAMES[shape])
    elif isinstance(shape, str):
        yield from _amount_problems(value, path)
    elif isinstance(shape, list):
        yield from _list_problems(value, shape[0], path)
    else:
        yield from _object_problems(value, shape, path)


def _object_problems(value: Any, shape: dict[str, Shape], path: str) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _problem(path, value, "is not an object", "write names with values")
        return
    every = shape.get(_ANY_KEY)
    for key in sorted(value, key=str) if every else shape:
        if key in value:
            yield from _problems(value[key], every or shape[key], f"{path}.{key}")


def _list_problems(value: Any, shape: Shape, path: str) -> Iterator[Problem]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        yield _problem(path, value, "is not a list", "write a list")
        return
    for index, item in enumerate(value):
        yield from _problems(item, shape, f"{path}[{index}]")


def _amount_problems(value: Any, path: str) -> Iterator[Problem]:
    try:
        amount = parse(amount_text(value))
    except NotAQuantity:
        yield _problem(
            path, value, "is not a quantity", "write it as Kubernetes does, such as 2, 500m or 16Gi"
        )
        return
    if amount.nano < 0:
        yield _problem(path, value, "is less than nothing", "write 0 or more")


def amount_text(value: Any) -> str:
    """The text of a quantity, which JSON may hold as a number."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.9f}".rstrip("0").rstrip(".") if is_number else ""


def _problem(path: str, value: Any, message: str, remedy: str) -> Problem:
    return Problem(field=path, value=shown(value), message=message, remedy=remedy)


def whole_numbers(value: Any) -> Any:
    """The same JSON without nulls, whole numbers as such: those of a Struct are all doubles."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
