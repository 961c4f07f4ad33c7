"""What a cluster is found to have that matters to gangs: what `selection` goes by, and checks look at.

Lives here: the record, as it is gathered, written down and read again. Does not: looking.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from backend_plugin.core.quantity import NotAQuantity, parse


class Findings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"
):
    """What a cluster has, for the jobs of one namespace; None: that cannot be told, and `unknown` says why.

    The keys of a file of findings are these names with ``-`` for ``_``.
    """

    kubernetes: str | None = None
    """The API server's version: ``1.35.2``."""
    apis: Mapping[str, Sequence[str]] | None = None
    """API groups with their versions, the preferred one first."""
    operator_scheduler: str | None = None
    """What the training-operator runs with as ``--gang-scheduler-name``; empty: it runs without."""
    schedulers: Sequence[str] | None = None
    """Who has lately bound a pod, by the names that pods have for them."""
    queues: Mapping[str, Sequence[str]] = {}
    """By the name that the settings have for a scheduler: the queues that there are. Of one that is not
    among them nothing is known."""
    admission_scheduler: str | None = None
    """Which scheduler a pod has that named none, once the cluster's webhooks are through with it."""
    suspends_jobs: bool | None = None
    """Whether Kueue holds back a PyTorchJob that names a queue of it."""
    keeps_scheduling_group: bool | None = None
    """Whether a pod may name a group of Kubernetes' own (``spec.schedulingGroup``)."""
    container_defaults: Mapping[str, str] = {}
    """What a container asks for, by the namespace's LimitRanges, of which it says nothing itself."""
    unknown: Mapping[str, str] = {}
    """Why a fact cannot be told, by its name here: what was answered, with the rule to add."""

    def __post_init__(self) -> None:
        """Raises `NotAQuantity` for amounts that are none."""
        for resource, amount in self.container_defaults.items():
            try:
                parse(amount)
            except NotAQuantity as refusal:
                raise NotAQuantity(f"container-defaults.{resource}={amount} is no quantity") from refusal

    def has_api(self, group: str) -> bool | None:
        """Whether the cluster serves an API group."""
        return None if self.apis is None else group in self.apis

    def after(self, last: "Findings") -> "Findings":
        """The same, with what the last look tried and this one could not.

        A full quota refuses what is tried, and changes nothing of what would come of it: without this the
        scheduler of a namespace would be another one whenever its quota is used up.
        """
        known = {name: getattr(last, name) for name in _TRIED if name in self.unknown}
        known = {name: value for name, value in known.items() if value is not None}
        unknown = {name: why for name, why in self.unknown.items() if name not in known}
        return structs.replace(self, unknown=unknown, **known)


_TRIED: Final = ("admission_scheduler", "keeps_scheduling_group", "suspends_jobs")


NOTHING = Findings()
"""Where nobody has looked."""
