"""The capabilities of a cluster that matter for gang scheduling, and their form in a file."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from backend_plugin.core.dialects.base import Dialect
from kfpytorch_common.quantity import InvalidQuantity, parse


class Capabilities(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"
):
    """The capabilities of a cluster for the jobs of one namespace.

    None in a field means unknown, and `unknown` has the reason. A file with capabilities, as
    ``kfpytorch render --capabilities`` reads it, has the field names as keys, with ``-`` instead of ``_``.
    """

    kubernetes: str | None = None
    """The version of the API server, such as ``1.35.2``."""
    apis: Mapping[str, Sequence[str]] | None = None
    """The versions of each API group, the preferred one first."""
    operator_scheduler: str | None = None
    """The value of ``--gang-scheduler-name`` of the training-operator; empty if it is not set."""
    unavailable_operators: Sequence[str] = ()
    """The kinds of jobs whose operator has no available pod; the state of other operators may be unknown."""
    schedulers: Sequence[str] | None = None
    """The `schedulerName` of each scheduler that bound a pod recently."""
    queues: Mapping[str, Sequence[str]] = {}
    """The queues of each scheduler, by its name in the settings; unknown for a scheduler without an entry."""
    admission_scheduler: str | None = None
    """The scheduler that the webhooks of the cluster set on a pod that specifies none."""
    suspends_jobs: bool | None = None
    """True if Kueue suspends a PyTorchJob with a queue name."""
    container_defaults: Mapping[str, str] = {}
    """The default requests of a container, from the LimitRanges of the namespace."""
    unknown: Mapping[str, str] = {}
    """The reason why a fact is unknown, by the name of its field: the API error, and the RBAC rule to add."""

    def __post_init__(self) -> None:
        """Raise `InvalidQuantity` if an amount in `container_defaults` is invalid."""
        for resource, amount in self.container_defaults.items():
            try:
                parse(amount)
            except InvalidQuantity as refusal:
                raise InvalidQuantity(
                    f"container-defaults.{resource}={amount} is not a quantity"
                ) from refusal

    def has_api(self, group: str) -> bool | None:
        """True if the cluster serves an API group; None if unknown."""
        return None if self.apis is None else group in self.apis

    def for_dialect(self, dialect: Dialect) -> "Capabilities":
        """Return the capabilities for the jobs of one dialect, a kind of job.

        For other kinds than PyTorchJob, the flag of the training-operator counts as not set, and
        `suspends_jobs` is None.
        """
        if dialect.creates_pod_groups:
            return self
        unknown = {name: why for name, why in self.unknown.items() if name not in _OF_DEFAULT_DIALECT}
        return structs.replace(self, operator_scheduler="", suspends_jobs=None, unknown=unknown)

    def with_last_known(self, last: "Capabilities") -> "Capabilities":
        """Return these capabilities, with the values of `last` for unknown results of dry-run requests.

        The API server rejects dry-run requests in a namespace with an exhausted quota. Without the last known
        results, another scheduler would be selected as soon as the quota is exhausted.
        """
        known = {name: getattr(last, name) for name in _TRIED if name in self.unknown}
        known = {name: value for name, value in known.items() if value is not None}
        unknown = {name: why for name, why in self.unknown.items() if name not in known}
        return structs.replace(self, unknown=unknown, **known)


_OF_DEFAULT_DIALECT: Final = ("operator_scheduler", "suspends_jobs")
"""The fields of `Capabilities` that apply only to the training-operator and PyTorchJobs."""
_TRIED: Final = ("admission_scheduler", "suspends_jobs")


NOTHING = Capabilities()
"""The capabilities of a cluster that was not examined."""
