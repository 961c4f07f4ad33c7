"""What a gang asks for, as its job carries it: so whoever tells that it waits can say how much that is.

Lives here: an annotation of the job, written and read; reading never fails. Does not: how much there is.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from backend_plugin.core.quantity import Quantity, multiple, total
from backend_plugin.core.reading import section
from backend_plugin.core.scheduling import requests
from backend_plugin.core.scheduling.adapter import Adapter
from backend_plugin.core.scheduling.gang import Gang
from backend_plugin.core.scheduling.words import bounded
from backend_plugin.core.values import Manifest

ANNOTATION: Final = "kfpytorch.flyte.org/gang"


_MOST: Final = 2**31 - 1
"""What a PyTorchJob may have of a role; with the digits of larger counts nothing could be written."""


class _Role(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str = ""
    count: Annotated[int, msgspec.Meta(ge=0, le=_MOST)] = 0
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class Asks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A gang, as far as telling of it needs to know; all defaults where nobody has said."""

    scheduler_name: str = ""
    """Whom its pods name; empty where that is not for us to say."""
    queue: str = ""
    by_operator: bool = False
    """Its group is made by the operator, which says nothing where it cannot."""
    roles: tuple[_Role, ...] = ()
    """The master first; of each as many as have to find a place."""

    @property
    def members(self) -> int:
        """How many have to find a place."""
        return sum(role.count for role in self.roles)

    def amount(self, resource: str, upto: str = "") -> Quantity | None:
        """How much of it is asked for, by all roles or by those up to one; None where nobody has said."""
        names = [role.name for role in self.roles]
        roles = self.roles[: names.index(upto) + 1] if upto in names else self.roles
        return self.of({role.name: role.count for role in roles}, resource)

    def of(self, counts: Mapping[str, int], resource: str) -> Quantity | None:
        """How much of it so many of each role ask for."""
        found = []
        for role in self.roles:
            if resource in role.requests and role.name in counts:
                if (each := bounded(role.requests[resource])) is None:
                    return None
                found.append(multiple(counts[role.name], each))
        return total(found) if found else None


NOBODY: Final = Asks()


def carried(job: Manifest, gang: Gang, adapter: Adapter) -> Manifest:
    """The job with what its gang asks for written on it."""
    asks = Asks(
        scheduler_name=gang.scheduler_name,
        queue=gang.admission_queue or gang.queue,
        by_operator=adapter.by_operator,
        roles=tuple(
            _Role(
                name=member.name,
                count=member.count if adapter.counts_all else member.min_count,
                requests=requests.written(member.request),
            )
            for member in gang.members
        ),
    )
    metadata = section(job, "metadata")
    said = msgspec.json.encode(asks, order="sorted").decode()
    annotations = {**section(metadata, "annotations"), ANNOTATION: said}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def of(annotations: Mapping[str, str]) -> Asks:
    """What the annotations of a job say; whoever may edit it writes there, too."""
    said = annotations.get(ANNOTATION)
    if said is None:
        return NOBODY
    try:
        return _DECODER.decode(said)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return NOBODY


_DECODER: Final = msgspec.json.Decoder(Asks)
