"""The resource requests of pods, summed up as kube-scheduler does. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from backend_plugin.core.quantity import NotAQuantity, parse
from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest

GPU: Final = "nvidia.com/gpu"
PODS: Final = "pods"

Amounts: TypeAlias = Mapping[str, int]
"""Amounts by resource, in billionths, the smallest unit of Kubernetes."""

ONE: Final = 10**9


def amounts(quantities: Manifest) -> Amounts:
    """Parse the quantities of a mapping. Invalid quantities are skipped."""
    found: dict[str, int] = {}
    for resource, said in quantities.items():
        try:
            found[resource] = parse(str(said)).nano
        except NotAQuantity:  # Admission rejects them, but objects of an earlier release may have them.
            continue
    return found


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum of two amounts."""
    return {each: one.get(each, 0) + other.get(each, 0) for each in (*one, *other)}


def most(one: Amounts, other: Amounts) -> Amounts:
    """Return the larger amount of each resource."""
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in (*one, *other)}


def requests(spec: Manifest) -> Amounts:
    """Return the requests of a pod: its app containers and sidecars, or a larger init container."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in entries(spec, "initContainers"):
        asked = _asked(container)
        # A sidecar keeps running with all containers after it.
        if text(container, "restartPolicy") == "Always":
            sidecars = plus(sidecars, asked)
            peak = most(peak, sidecars)
        else:
            peak = most(peak, plus(sidecars, asked))
    running = _sum(map(_asked, entries(spec, "containers")), sidecars)
    overhead = amounts(section(spec, "overhead"))
    return {**plus(most(running, peak), overhead), PODS: ONE}


def _sum(each: Iterable[Amounts], start: Amounts) -> Amounts:
    for one in each:
        start = plus(start, one)
    return start


def _asked(container: Manifest) -> Amounts:
    said = section(container, "resources")
    # The request of a container defaults to its limit.
    return {**amounts(section(said, "limits")), **amounts(section(said, "requests"))}


def gpus(container: Manifest) -> int:
    """Return the number of GPUs that a container requests."""
    return _asked(container).get(GPU, 0) // ONE
