"""The resource requests of pods and the resources of nodes, as integers. Pure."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from backend_plugin.core.scheduling import pod_requests
from backend_plugin.core.values import Manifest
from kfpytorch_common.quantity import InvalidQuantity, parse

GPU: Final = "nvidia.com/gpu"
PODS: Final = "pods"

Amounts: TypeAlias = Mapping[str, int]
"""The amount of each resource, in billionths, the smallest unit of a quantity in Kubernetes."""

ONE: Final = 10**9


def parse_amounts(quantities: Manifest) -> Amounts:
    """Parse quantities by resource, such as ``500m``, to integers; see `Amounts`. Omit invalid quantities."""
    return _get_numbers(parse_quantities(quantities))


def parse_quantities(quantities: Manifest) -> pod_requests.Amounts:
    """Parse the quantity of each resource, such as ``500m``. Omit invalid quantities."""
    found = {}
    for resource, quantity in quantities.items():
        with suppress(InvalidQuantity):  # For the doctor, which also reads other clusters.
            found[resource] = parse(str(quantity))
    return found


def compute_requests(spec: Manifest) -> Amounts:
    """Return the resource requests of a pod, plus 1 of the resource `pods`, which limits a node's pods."""
    return {**_get_numbers(pod_requests.compute_pod_requests(spec)), PODS: ONE}


def count_gpus(container: Manifest) -> int:
    """Return the number of GPUs that a container requests."""
    return _get_numbers(pod_requests.read_request(container)).get(GPU, 0) // ONE


def _get_numbers(amounts: pod_requests.Amounts) -> Amounts:
    return {name: amount.nano for name, amount in amounts.items()}
