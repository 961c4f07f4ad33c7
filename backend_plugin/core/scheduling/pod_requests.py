"""The effective resource requests of a pod, as Kubernetes computes them for quotas and schedulers."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.schema_check import parse_amounts
from backend_plugin.core.values import Manifest
from kfpytorch_common.quantity import Quantity, add_quantities, multiply_quantity

Amounts: TypeAlias = Mapping[str, Quantity]
NOTHING: Final[Amounts] = MappingProxyType({})

# Kubernetes supports only these resources in the resources of a pod.
_OF_WHOLE_PODS: Final = ("cpu", "memory")
_PAGES: Final = "hugepages-"


def compute_pod_requests(
    spec: Manifest, more: Sequence[Manifest] = (), defaults: Amounts = NOTHING
) -> Amounts:
    """Return the requests of a pod; `more` are init containers that run after those of the pod."""
    of_containers = _compute_peak_requests(spec, more, defaults)
    requests = {**of_containers, **_read_pod_level_requests(spec, of_containers)}
    return add_amounts([requests, parse_amounts(get_mapping(spec, "overhead"))])


def add_amounts(parts: Iterable[Amounts]) -> Amounts:
    """Return the sum of all amounts by resource name."""
    parts = [*parts]
    names = sorted({name for part in parts for name in part})
    return {name: add_quantities(part[name] for part in parts if name in part) for name in names}


def scale_amounts(count: int, amounts: Amounts) -> Amounts:
    """Return each amount multiplied by `count`."""
    return {name: multiply_quantity(count, amount) for name, amount in amounts.items()}


def format_amounts(amounts: Amounts) -> dict[str, str]:
    """Return the amounts as texts by resource name, as a manifest has them, without those that are zero."""
    return {name: amount.text for name, amount in sorted(amounts.items()) if amount}


def _compute_peak_requests(spec: Manifest, more: Sequence[Manifest], defaults: Amounts) -> Amounts:
    """Return the highest requests of a pod at one time: of one init container, or of all containers together.

    The requests of the sidecars that are running at this time are added.
    """
    sidecars: list[Amounts] = []
    peaks: list[Amounts] = []
    for container in [*get_mappings(spec, "initContainers"), *more]:
        request = read_request(container, defaults)
        if is_sidecar(container):
            sidecars.append(request)
        else:
            peaks.append(add_amounts([request, *sidecars]))
    running = [read_request(each, defaults) for each in get_mappings(spec, "containers")]
    return compute_maximum([add_amounts([*running, *sidecars]), *peaks])


def is_sidecar(container: Manifest) -> bool:
    """True if an init container is a native sidecar, which runs beside the containers of its pod."""
    return get_text(container, "restartPolicy") == "Always"


def compute_maximum(parts: Sequence[Amounts]) -> Amounts:
    """Return the largest amount of each resource."""
    names = {name for part in parts for name in part}
    return {name: max(part[name] for part in parts if name in part) for name in names}


def read_request(container: Manifest, defaults: Amounts = NOTHING) -> Amounts:
    """Return the requests of a container; a limit, or else a default, replaces a missing request."""
    resources = get_mapping(container, "resources")
    limits, requests = (parse_amounts(get_mapping(resources, part)) for part in ("limits", "requests"))
    return {**defaults, **limits, **requests}


def _read_pod_level_requests(spec: Manifest, of_containers: Amounts) -> Amounts:
    """Return the pod-level requests; without a request of pod or containers, the pod-level limit counts."""
    resources = get_mapping(spec, "resources")
    limits, requests = (parse_amounts(get_mapping(resources, part)) for part in ("limits", "requests"))
    amounts = {
        **limits,
        **{name: of_containers[name] for name in limits if name in of_containers},
        **requests,
    }
    return {name: amounts[name] for name in amounts if name in _OF_WHOLE_PODS or name.startswith(_PAGES)}
