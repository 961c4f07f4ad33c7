"""The annotation that stores the roles and requests of a gang, for messages about a pending gang."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from backend_plugin.core.scheduling import pod_requests
from backend_plugin.core.scheduling.adapter import SchedulerAdapter
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.status_parser import parse_bounded
from kfpytorch_common.quantity import Quantity, add_quantities, multiply_quantity

ANNOTATION: Final = "kfpytorch.flyte.org/gang"


_MOST: Final = 2**31 - 1
"""The maximum number of replicas of a role; Python raises ValueError if it formats a huge number."""


class _RoleSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str = ""
    count: Annotated[int, msgspec.Meta(ge=0, le=_MOST)] = 0
    replicas: Annotated[int, msgspec.Meta(ge=0, le=_MOST)] = 0
    """The number of all replicas if it is larger than `count`, else 0."""
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class GangSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The gang of a job, for messages. All fields have their defaults if the gang is unknown."""

    scheduler_name: str = ""
    """The `schedulerName` of the pods; empty if the scheduler adapter does not set it."""
    queue: str = ""
    by_operator: bool = False
    """True if the operator creates the pod group; the operator reports no error if it fails to do so."""
    roles: tuple[_RoleSummary, ...] = ()
    """The roles, the master first, each with the number of replicas that must be placed."""
    initializers: tuple[_RoleSummary, ...] = ()
    """The initializers in the order of the JobSet.

    If a runtime of the cluster defines them, their requests are unknown, and `requests` is empty.
    """

    @property
    def has_unknown_requests(self) -> bool:
        """True if the requests of an initializer are unknown."""
        return not all(role.requests for role in self.initializers)

    def compute_total(self, resource: str, upto: str = "", *, counts_all: bool = False) -> Quantity | None:
        """Return the amount of a resource that all roles request; None if it is unknown.

        If `upto` names a role, only the roles up to and including this one count. With `counts_all`, every
        replica and initializer counts. Otherwise, only the replicas that must be placed count.
        """
        roles = (*self.initializers, *self.roles) if counts_all else self.roles
        names = [role.name for role in roles]
        roles = roles[: names.index(upto) + 1] if upto in names else roles
        counts = {role.name: (role.replicas if counts_all else 0) or role.count for role in roles}
        return self.compute_amount(counts, resource)

    def compute_amount(self, counts: Mapping[str, int], resource: str) -> Quantity | None:
        """Return the amount of a resource that the given number of pods of each role requests.

        Return None if none of these roles requests the resource, or if an amount is invalid.
        """
        amounts = []
        for role in (*self.initializers, *self.roles):
            if resource in role.requests and role.name in counts:
                if (each := parse_bounded(role.requests[resource])) is None:
                    return None
                amounts.append(multiply_quantity(counts[role.name], each))
        return add_quantities(amounts) if amounts else None


NO_GANG: Final = GangSummary()


def encode_gang(gang: GangSpec, adapter: SchedulerAdapter) -> str:
    """Return the value of the annotation that stores what a job requests of its gang scheduler."""
    asks = GangSummary(
        scheduler_name=gang.scheduler_name,
        queue=gang.admission_queue or gang.queue,
        by_operator=adapter.matches_flag is not None,
        roles=tuple(
            _RoleSummary(
                name=member.name,
                count=(count := member.count if adapter.counts_all else member.min_count),
                replicas=member.count if member.count > count else 0,
                requests=pod_requests.format_amounts(member.request),
            )
            for member in gang.members
        ),
        # A list, because msgspec omits only the one empty tuple `()`, and Python 3.10 creates others.
        initializers=tuple(
            [
                _RoleSummary(name=name, count=1, requests=pod_requests.format_amounts(request))
                for name, request in gang.initializers.items()
            ]
        ),
    )
    return msgspec.json.encode(asks, order="sorted").decode()


def read_gang_summary(annotations: Mapping[str, str]) -> GangSummary:
    """Return the gang in the annotations of a job; `NO_GANG` if absent or invalid.

    The annotation is untrusted: a user who may edit the job can change it.
    """
    text = annotations.get(ANNOTATION)
    if text is None:
        return NO_GANG
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return NO_GANG


_DECODER: Final = msgspec.json.Decoder(GangSummary)
