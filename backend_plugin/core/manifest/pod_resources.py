"""The resources of each container: sources, defaults and limits."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from backend_plugin.core import schema_check
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, omit_empty
from kfpytorch_common.quantity import InvalidQuantity, Quantity, parse

_NOTHING: Final = parse("0")
# Flyte sets these resources in every container, even if the task does not specify them.
_ALWAYS: Final = ("cpu", "memory")
_STORAGE: Final = "ephemeral-storage"
# flytekit's names for a GPU of any kind.
_ANY_GPU: Final = ("gpu", "nvidia.com/gpu")


class ResourceRequirements(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and limits by resource name."""

    requests: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    limits: Mapping[str, Quantity] = msgspec.field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of all resources, sorted."""
        return sorted({*self.requests, *self.limits})

    def with_defaults(self, other: "ResourceRequirements") -> "ResourceRequirements":
        """Return these requirements, with the values of `other` for resources that they do not specify."""
        return ResourceRequirements(
            requests={**other.requests, **self.requests}, limits={**other.limits, **self.limits}
        )

    def to_manifest(self) -> dict[str, dict[str, str]]:
        """Return the requirements as the field ``resources`` of a container."""
        parts = {"limits": self.limits, "requests": self.requests}
        return {
            part: {name: amounts[name].text for name in amounts} for part, amounts in parts.items() if amounts
        }


NO_CLAIM: Final = ResourceRequirements()


def read_container_resources(container: Fields, settings: Settings) -> ResourceRequirements:
    """Return the requirements of a container that has passed the schema check."""
    resources = container.get("resources", {})
    return ResourceRequirements(
        requests=_parse_amounts(resources.get("requests", {}), ("gpu",), settings),
        limits=_parse_amounts(resources.get("limits", {}), ("gpu",), settings),
    )


def read_role_resources(
    group: ReplicaGroup, settings: Settings, problems: list[Problem]
) -> ResourceRequirements:
    """Return the resources that the author sets for a role; empty if absent or invalid.

    They replace the resources of the task. A request without a limit is also the limit, and a limit without a
    request is also the request. Problems are added to `problems`.
    """
    if group.resources is None:
        return NO_CLAIM
    parts = {"requests": group.resources.requests, "limits": group.resources.limits}
    try:
        requests, limits = (_parse_amounts(amounts, _ANY_GPU, settings) for amounts in parts.values())
    except InvalidQuantity:
        path = f"custom.{group.role.value.lower()}Replicas.resources"
        for part, amounts in parts.items():
            problems += schema_check.check_value(amounts, schema_check.AMOUNTS, f"{path}.{part}")
        return NO_CLAIM
    claim = ResourceRequirements(requests=omit_empty(requests), limits=omit_empty(limits))
    return _complete_resources(claim, claim.names, settings, {})


def compute_trainer_resources(
    own: ResourceRequirements, group: ResourceRequirements, template: ResourceRequirements, settings: Settings
) -> ResourceRequirements:
    """Return the final requirements of the primary container, which trains, or of an init container.

    The order of precedence is: those of the replica role (`group`), those of the container (`own`), those of
    the PodTemplate (`template`), and the defaults of the platform.
    """
    claim = group.with_defaults(own).with_defaults(template)
    names = [*_ALWAYS, *({_STORAGE, settings.gpu_resource_name} & {*claim.names})]
    defaults = {"cpu": settings.default_cpus, "memory": settings.default_memory}
    platform_defaults = settings.kfpytorch.task_resources.defaults
    complete = _complete_resources(claim, names, settings, {**defaults, **omit_empty(platform_defaults)})
    return normalize_resources(complete.with_defaults(claim))


def compute_sidecar_resources(
    own: ResourceRequirements, template: ResourceRequirements, settings: Settings
) -> ResourceRequirements:
    """Return the final requirements of a container that does not train, reduced to the platform's limits."""
    claim = own.with_defaults(template)
    # Only these resources are reduced. Fewer devices would be worse than none, and Flyte does not limit other
    # resources.
    cut = {*_ALWAYS, _STORAGE}
    most = {name: most for name, most in settings.kfpytorch.task_resources.limits.items() if name in cut}
    limits = {name: _limit_amount(amount, most.get(name)) for name, amount in claim.limits.items()}
    requests = {
        name: _limit_amount(_limit_amount(amount, most.get(name)), limits.get(name) if name in cut else None)
        for name, amount in claim.requests.items()
    }
    counted = {_STORAGE, settings.gpu_resource_name} & {*claim.names}
    nothing = dict.fromkeys([*_ALWAYS, *counted], _NOTHING)
    return normalize_resources(
        ResourceRequirements(requests={**nothing, **requests}, limits={**nothing, **limits})
    )


def subtract_primary(own: ResourceRequirements, primary: ResourceRequirements) -> ResourceRequirements:
    """Return a sidecar's requirements `own`, without the resources that have the same amounts in `primary`.

    FlytePropeller has copied such resources from the container ``primary`` of the PodTemplate.
    """
    inherited = {
        name
        for name in primary.names
        if own.limits.get(name, _NOTHING) == primary.limits.get(name, _NOTHING)
        and own.requests.get(name, _NOTHING) in (primary.requests.get(name, _NOTHING), _NOTHING)
    }
    nothing = dict.fromkeys(inherited & {*_ALWAYS}, _NOTHING)
    requests, limits = (
        {**nothing, **{name: amount for name, amount in amounts.items() if name not in inherited}}
        for amounts in (own.requests, own.limits)
    )
    return ResourceRequirements(requests=requests, limits=limits)


def normalize_resources(claim: ResourceRequirements) -> ResourceRequirements:
    """Return the requirements in a form that the API server accepts.

    A zero limit of a requested resource is left out. A requested device gets both a request and
    a limit; the one that is zero or absent becomes equal to the other.
    """
    limits = {
        name: amount
        for name, amount in claim.limits.items()
        if amount or not claim.requests.get(name)  # FlytePropeller writes 0 for an unspecified limit.
    }
    requests = dict(claim.requests)
    # An absent request defaults to the limit, but a request of zero does not; devices cannot be
    # overcommitted.
    for name in filter(is_device, claim.requests):
        amount = limits.get(name) or requests[name]
        requests[name], limits[name] = requests[name] or amount, amount
    return ResourceRequirements(requests=requests, limits=limits)


def get_resource_names(container: Fields) -> set[str]:
    """Return the names of the resources that a container requests or limits."""
    resources = container.get("resources", {})
    return {*resources.get("requests", ()), *resources.get("limits", ())}


def get_container_resource_names(spec: Fields) -> set[str]:
    """Return the names of the resources that a pod's containers, except init containers, request or limit."""
    return {name for each in spec["containers"] for name in get_resource_names(each)}


def get_requested_resource_names(spec: Fields) -> set[str]:
    """Return the names of the resources that any container of a pod requests."""
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    return {name for each in containers for name in each.get("resources", {}).get("requests", {})}


@lru_cache(maxsize=256)
def is_device(name: str) -> bool:
    """True if Kubernetes treats the resource as an extended resource, with whole numbers only."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io") and not name.startswith("requests.")


def check_devices(claim: ResourceRequirements, path: str, settings: Settings) -> Iterator[Problem]:
    """Yield a problem for each device with a fractional amount or different request and limit.

    Also yield a problem if there are more GPUs than the settings allow. `path` is the path of the container
    in the task template.
    """
    gpu, most = settings.gpu_resource_name, omit_empty(settings.kfpytorch.task_resources.limits)
    for name in filter(is_device, claim.names):
        limit = claim.limits.get(name, _NOTHING)
        request = claim.requests.get(name, limit)
        if not limit.is_whole or not request.is_whole:
            yield _problem(path, name, limit, "is not a whole number of devices", "write a whole number")
        elif request != limit:
            message = f"differs from the request, {request.text}; for devices, both must be equal"
            yield _problem(path, name, limit, message, "write the same number for both")
        elif name == gpu and limit > most.get(gpu, limit):
            message = f"is more than this platform allows, {most[gpu].text}"
            remedy = f"request at most {most[gpu].text}, or have an admin raise the limit"
            yield _problem(path, name, limit, message, remedy)


def _problem(path: str, name: str, amount: Quantity, message: str, remedy: str) -> Problem:
    field_path = f"{path}.resources.limits.{name}"
    return Problem(field=field_path, value=amount.text, message=message, remedy=remedy)


def _complete_resources(
    claim: ResourceRequirements, names: list[str], settings: Settings, defaults: Mapping[str, Quantity]
) -> ResourceRequirements:
    """Return a request and a limit for each of the resources `names`.

    A missing request is the limit or else the default, and a missing limit is the request. Amounts, except
    those of devices, are reduced to the platform's limit.
    """
    requests, limits = {}, {}
    for name in names:
        limit, most = claim.limits.get(name), settings.kfpytorch.task_resources.limits.get(name)
        request = claim.requests.get(name) or limit or defaults.get(name, _NOTHING)
        limit = limit or request
        if is_device(name):
            requests[name], limits[name] = request, limit
        else:
            limits[name] = _limit_amount(limit, most)
            requests[name] = _limit_amount(_limit_amount(request, most), limits[name])
    return ResourceRequirements(requests=requests, limits=limits)


def _limit_amount(amount: Quantity, most: Quantity | None) -> Quantity:
    return most if most and amount and amount > most else amount


def _parse_amounts(values: Fields, gpu: tuple[str, ...], settings: Settings) -> dict[str, Quantity]:
    amounts = {name: schema_check.parse_amount(amount) for name, amount in values.items()}
    for name in gpu:
        if name in amounts and name != settings.gpu_resource_name:
            amounts.setdefault(settings.gpu_resource_name, amounts[name])
            del amounts[name]
    return amounts
