"""The setting that limits the fields that authors may write into their pods."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class PodSecurityMode(enum.Enum):
    """The treatment of a pod that violates the level "baseline" of the Pod Security Standards."""

    OFF = "off"
    WARN = "warn"
    """The job is created, and the server logs the fields."""
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecuritySettings:
    """The treatment, by namespace, of authors' pods that violate the Pod Security level "baseline".

    The settings also contain the service accounts that an author may name.
    """

    mode: PodSecurityMode = PodSecurityMode.ENFORCE
    by_namespace: Mapping[str, PodSecurityMode] = field(default_factory=dict)
    service_accounts: Sequence[str] = ()
    """The service accounts that an author may name instead of the one that Flyte selected."""

    def get_mode(self, namespace: str) -> PodSecurityMode:
        """Return the mode for the tasks of a namespace."""
        return self.by_namespace.get(namespace, self.mode)
