"""How much a pod takes of a node.

Lives here: PURE; requests as the scheduler sums them up. Does not: what a node has; see `nodes`.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from backend_plugin.core.quantity import NotAQuantity, parse
from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest

GPU: Final = "nvidia.com/gpu"
PODS: Final = "pods"

Amounts: TypeAlias = Mapping[str, int]
"""By resource, in billionths, the finest that Kubernetes knows."""

ONE: Final = 10**9


def amounts(quantities: Manifest) -> Amounts:
    """The quantities of a mapping; what is none is left out."""
    found: dict[str, int] = {}
    for resource, said in quantities.items():
        try:
            found[resource] = parse(str(said)).nano
        except NotAQuantity:  # Admission has refused it; an object of an older release may have it.
            continue
    return found


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Both together."""
    return {each: one.get(each, 0) + other.get(each, 0) for each in (*one, *other)}


def most(one: Amounts, other: Amounts) -> Amounts:
    """Of each resource the larger amount."""
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in (*one, *other)}


def requests(spec: Manifest) -> Amounts:
    """What a pod with that spec takes: its app containers and sidecars, or its hungriest init container."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in entries(spec, "initContainers"):
        asked = _asked(container)
        # A sidecar goes on beside all that come after it.
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
    # Who says a limit and no request asks for the limit.
    return {**amounts(section(said, "limits")), **amounts(section(said, "requests"))}


def gpus(container: Manifest) -> int:
    """How many GPUs a container asks for."""
    return _asked(container).get(GPU, 0) // ONE
