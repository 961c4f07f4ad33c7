"""Parse and check the quantities in flytekit's ``Resources``: cpu, memory, GPUs, ephemeral storage."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from flytekit import Resources

from flytekitplugins.kfpytorch.problems import ConfigProblem, build_invalid_value, require_no_problems
from flytekitplugins.kfpytorch.validators import find_problems
from kfpytorch_common.quantity import InvalidQuantity, Quantity, parse

RESOURCE_FIELDS: Final = ("cpu", "mem", "gpu", "ephemeral_storage")
_QUANTITY_REMEDY: Final = "must be a quantity as Kubernetes writes it, such as 2, '500m' or '16Gi'"


def parse_quantity(value: object) -> Quantity:
    """Parse a quantity as Kubernetes does: ``2``, ``0.5``, ``"500m"``, ``"16Gi"``, ``"1e3"``."""
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        raise build_invalid_value(value, _QUANTITY_REMEDY)
    try:
        amount = parse(str(value))
    except InvalidQuantity:
        raise build_invalid_value(value, _QUANTITY_REMEDY) from None
    if amount.nano < 0:
        raise build_invalid_value(value, "must not be negative")
    return amount


def _read_resources(value: object, *, allows_pairs: bool) -> object:
    require_no_problems(_check_amounts(value, allows_pairs=allows_pairs))
    return value


read_paired_resources: Final = partial(_read_resources, allows_pairs=True)
"""Return a value if it is valid for ``resources=``; each amount may be a pair ``(request, limit)``."""
read_single_resources: Final = partial(_read_resources, allows_pairs=False)
"""Return a value if it is valid for ``requests=`` or ``limits=``, where an amount is not a pair."""


def _check_amounts(value: object, *, allows_pairs: bool) -> Iterator[ConfigProblem]:
    if not isinstance(value, Resources):
        remedy = "must be flytekit's Resources, such as Resources(cpu='4', mem='16Gi', gpu='1')"
        yield ConfigProblem("", value, remedy)
        return
    for name in RESOURCE_FIELDS:
        item = getattr(value, name)
        is_pair = isinstance(item, (list, tuple))
        reader = _parse_devices if name == "gpu" else parse_quantity
        for amount in item if is_pair else [item]:
            if amount is not None:
                yield from find_problems(name, reader, amount)
        if is_pair and not allows_pairs:
            remedy = "must be one value; a request with its limit goes into resources="
            yield ConfigProblem(name, item, remedy)


def _parse_devices(value: object) -> Quantity:
    amount = parse_quantity(value)
    if not amount.is_whole:
        raise build_invalid_value(value, "must be a whole number of devices")
    return amount


def parse_amounts(stated: Mapping[str, object]) -> dict[str, Quantity]:
    """Return the parsed amount of each resource, without values that are not quantities, such as None."""
    return {
        name: parse_quantity(value)
        for name, value in stated.items()
        if not find_problems("", parse_quantity, value)
    }


def split_resources(resources: Any) -> tuple[Any, Any]:
    """Split ``resources=`` into requests and limits.

    Each field of `resources` has one value for both, or a pair ``(request, limit)``.
    """
    requests, limits = {}, {}
    for name in RESOURCE_FIELDS:
        value = getattr(resources, name)
        requests[name], limits[name] = value if isinstance(value, (list, tuple)) else (value, value)
    return Resources(**requests), Resources(**limits)


def find_excess_requests(requests: Any, limits: Any) -> Iterator[ConfigProblem]:
    """Yield a problem for each request above its limit; skip values that are not quantities."""
    if None in (requests, limits):
        return
    most = parse_amounts(vars(limits))
    for name, request in parse_amounts(vars(requests)).items():
        if name in most and request > most[name]:
            yield ConfigProblem(
                name, getattr(requests, name), f"exceeds the limit, {getattr(limits, name)!r}"
            )
