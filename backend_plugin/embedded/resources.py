"""The resource requests of pods, summed up as kube-scheduler does. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from backend_plugin.core.quantity import InvalidQuantity, parse
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest

GPU: Final = "nvidia.com/gpu"
PODS: Final = "pods"

Amounts: TypeAlias = Mapping[str, int]
"""Amounts by resource, in billionths, the smallest unit of Kubernetes."""

ONE: Final = 10**9


def parse_amounts(quantities: Manifest) -> Amounts:
    """Parse the quantities of a mapping. Invalid quantities are skipped."""
    found: dict[str, int] = {}
    for resource, said in quantities.items():
        try:
            found[resource] = parse(str(said)).nano
        except InvalidQuantity:  # The doctor reads objects of any cluster.
            continue
    return found


def add_amounts(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum of two amounts."""
    return {each: one.get(each, 0) + other.get(each, 0) for each in (*one, *other)}


def merge_maximum(one: Amounts, other: Amounts) -> Amounts:
    """Return the larger amount of each resource."""
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in (*one, *other)}


def compute_requests(spec: Manifest) -> Amounts:
    """Return the requests of a pod: its app containers and sidecars, or a larger init container."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in get_mappings(spec, "initContainers"):
        asked = _read_requests(container)
        # A sidecar keeps running with all containers after it.
        if get_text(container, "restartPolicy") == "Always":
            sidecars = add_amounts(sidecars, asked)
            peak = merge_maximum(peak, sidecars)
        else:
            peak = merge_maximum(peak, add_amounts(sidecars, asked))
    running = _sum_amounts(map(_read_requests, get_mappings(spec, "containers")), sidecars)
    overhead = parse_amounts(get_mapping(spec, "overhead"))
    return {**add_amounts(merge_maximum(running, peak), overhead), PODS: ONE}


def _sum_amounts(each: Iterable[Amounts], start: Amounts) -> Amounts:
    for one in each:
        start = add_amounts(start, one)
    return start


def _read_requests(container: Manifest) -> Amounts:
    said = get_mapping(container, "resources")
    # The request of a container defaults to its limit.
    return {**parse_amounts(get_mapping(said, "limits")), **parse_amounts(get_mapping(said, "requests"))}


def count_gpus(container: Manifest) -> int:
    """Return the number of GPUs that a container requests."""
    return _read_requests(container).get(GPU, 0) // ONE
