"""What a pod asks of a node, as Kubernetes computes it: for quotas, schedulers, and the size of a gang.

Lives here: a finished pod's spec → amounts by resource. Does not: what its containers come to ask for; see
`manifest.pod_resources`.
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

# By default; a platform that gives its operator another one has an init container that we cannot know.
_INIT_PYTORCH: Final[Manifest] = {
    "name": "init-pytorch",
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
}
# Of what else a pod as a whole says, nothing counts.
_OF_WHOLE_PODS: Final = ("cpu", "memory")
_PAGES: Final = "hugepages-"


def of_replica(spec: Manifest, role: Role, roles: Iterable[Role], defaults: Amounts = NOTHING) -> Amounts:
    """What a replica asks for, with what its operator puts into its pod.

    Args:
        spec: Of its pod.
        role: Its own.
        roles: Of the job.
        defaults: What a container gets, by the LimitRanges of its namespace, of which it says nothing.
    """
    is_waiting = role is Role.WORKER and Role.MASTER in roles
    return of_pod(spec, [_INIT_PYTORCH] if is_waiting else [], defaults)


def of_pod(spec: Manifest, more: Sequence[Manifest] = (), defaults: Amounts = NOTHING) -> Amounts:
    """What a pod of this spec asks for; `more` are further init containers, after its own."""
    of_containers = _of_containers(spec, more, defaults)
    return summed([{**of_containers, **_of_whole(spec, of_containers)}, amounts(section(spec, "overhead"))])


def summed(parts: Iterable[Amounts]) -> Amounts:
    """All of them together."""
    parts = [*parts]
    names = sorted({name for part in parts for name in part})
    return {name: total(part[name] for part in parts if name in part) for name in names}


def times(count: int, amounts: Amounts) -> Amounts:
    """So many of them."""
    return {name: multiple(count, amount) for name, amount in amounts.items()}


def written(amounts: Amounts) -> dict[str, str]:
    """As a manifest has them, without those of nothing."""
    return {name: amount.text for name, amount in sorted(amounts.items()) if amount}


def _of_containers(spec: Manifest, more: Sequence[Manifest], defaults: Amounts) -> Amounts:
    """All that run at once: the containers with the sidecars, or an init container with those before it."""
    sidecars: list[Amounts] = []
    peaks: list[Amounts] = []
    for container in [*entries(spec, "initContainers"), *more]:
        asked = {**defaults, **_of_container(container)}
        if text(container, "restartPolicy") == "Always":
            sidecars.append(asked)
        else:
            peaks.append(summed([asked, *sidecars]))
    running = [{**defaults, **_of_container(each)} for each in entries(spec, "containers")]
    together = summed([*running, *sidecars])
    names = {name for part in (together, *peaks) for name in part}
    return {name: max(part[name] for part in (together, *peaks) if name in part) for name in names}


def _of_container(container: Manifest) -> Amounts:
    resources = section(container, "resources")
    return {**amounts(section(resources, "limits")), **amounts(section(resources, "requests"))}


def _of_whole(spec: Manifest, of_containers: Amounts) -> Amounts:
    """What the pod says for all of its containers; a limit counts only where nobody has a request."""
    resources = section(spec, "resources")
    limits, requests = (amounts(section(resources, part)) for part in ("limits", "requests"))
    said = {**limits, **{name: of_containers[name] for name in limits if name in of_containers}, **requests}
    return {name: said[name] for name in said if name in _OF_WHOLE_PODS or name.startswith(_PAGES)}


def amounts(said: Manifest) -> Amounts:
    """Of what a manifest writes."""
    return {name: parse(amount_text(amount)) for name, amount in said.items()}
