"""The effective resource requests of a pod, as Kubernetes computes them for quotas and schedulers.

`manifest.pod_resources` computes the resources of each container.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from backend_plugin.core.job import Role
from backend_plugin.core.quantity import Quantity, multiple, parse, total
from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.shapes import amount_text
from backend_plugin.core.values import Manifest

Amounts: TypeAlias = Mapping[str, Quantity]
NOTHING: Final[Amounts] = MappingProxyType({})

# The default of the operator. A platform can configure another init container, which we cannot see.
_INIT_PYTORCH: Final[Manifest] = {
    "name": "init-pytorch",
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
}
# Kubernetes supports only these resources in the resources of a pod.
_OF_WHOLE_PODS: Final = ("cpu", "memory")
_PAGES: Final = "hugepages-"


def of_replica(spec: Manifest, role: Role, roles: Iterable[Role], defaults: Amounts = NOTHING) -> Amounts:
    """Return the requests of one replica, including the init container that the operator adds.

    Args:
        spec: The spec of its pod.
        role: Its role.
        roles: All roles of the job.
        defaults: The default requests of a container, from the LimitRanges of its namespace.
    """
    is_waiting = role is Role.WORKER and Role.MASTER in roles
    return of_pod(spec, [_INIT_PYTORCH] if is_waiting else [], defaults)


def of_pod(spec: Manifest, more: Sequence[Manifest] = (), defaults: Amounts = NOTHING) -> Amounts:
    """Return the requests of a pod; `more` are further init containers that run after its own."""
    of_containers = _of_containers(spec, more, defaults)
    return summed([{**of_containers, **_of_whole(spec, of_containers)}, amounts(section(spec, "overhead"))])


def summed(parts: Iterable[Amounts]) -> Amounts:
    """Return the sum of all amounts by resource name."""
    parts = [*parts]
    names = sorted({name for part in parts for name in part})
    return {name: total(part[name] for part in parts if name in part) for name in names}


def times(count: int, amounts: Amounts) -> Amounts:
    """Return each amount multiplied by `count`."""
    return {name: multiple(count, amount) for name, amount in amounts.items()}


def written(amounts: Amounts) -> dict[str, str]:
    """Return the amounts as in a manifest, without those that are zero."""
    return {name: amount.text for name, amount in sorted(amounts.items()) if amount}


def _of_containers(spec: Manifest, more: Sequence[Manifest], defaults: Amounts) -> Amounts:
    """Return the maximum over the phases of a pod: each init container, then all containers.

    Each phase includes the sidecars that are already running.
    """
    sidecars: list[Amounts] = []
    peaks: list[Amounts] = []
    for container in [*entries(spec, "initContainers"), *more]:
        asked = read_request(container, defaults)
        if is_sidecar(container):
            sidecars.append(asked)
        else:
            peaks.append(summed([asked, *sidecars]))
    running = [read_request(each, defaults) for each in entries(spec, "containers")]
    return compute_maximum([summed([*running, *sidecars]), *peaks])


def is_sidecar(container: Manifest) -> bool:
    """True if an init container is a native sidecar, which runs beside the containers of its pod."""
    return text(container, "restartPolicy") == "Always"


def compute_maximum(parts: Sequence[Amounts]) -> Amounts:
    """Return the largest amount of each resource."""
    names = {name for part in parts for name in part}
    return {name: max(part[name] for part in parts if name in part) for name in names}


def read_request(container: Manifest, defaults: Amounts = NOTHING) -> Amounts:
    """Return the request of a container; a limit applies if there is no request."""
    resources = section(container, "resources")
    said = {**amounts(section(resources, "limits")), **amounts(section(resources, "requests"))}
    return {**defaults, **said}


def _of_whole(spec: Manifest, of_containers: Amounts) -> Amounts:
    """Return the pod-level requests; a limit applies only to a resource that no request specifies."""
    resources = section(spec, "resources")
    limits, requests = (amounts(section(resources, part)) for part in ("limits", "requests"))
    said = {**limits, **{name: of_containers[name] for name in limits if name in of_containers}, **requests}
    return {name: said[name] for name in said if name in _OF_WHOLE_PODS or name.startswith(_PAGES)}


def amounts(said: Manifest) -> Amounts:
    """Return the parsed amounts of a manifest."""
    return {name: parse(amount_text(amount)) for name, amount in said.items()}
