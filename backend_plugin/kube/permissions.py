"""What our account may not do: said once, with the rule to add, until it may.

Lives here: the words, and that they are said once. Does not: what is done without.
"""

import logging
from dataclasses import dataclass
from typing import Final

from backend_plugin.kube.kinds import Resource

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a role has to permit."""

    resource: Resource
    verbs: tuple[str, ...]
    namespace: str = ""
    """Empty: in all of them."""
    sub: str = ""
    """A part of the resource, as the ``log`` of pods."""

    def __str__(self) -> str:
        """As it is added to a role."""
        group, verbs = self.resource.group or '""', ", ".join(self.verbs)
        return f"{{apiGroups: [{group}], resources: [{self.plural}], verbs: [{verbs}]}}"

    @property
    def plural(self) -> str:
        """As a role names what it is about."""
        return f"{self.resource.plural}/{self.sub}" if self.sub else self.resource.plural

    @property
    def role(self) -> str:
        """Where it belongs."""
        return f"a Role in namespace {self.namespace}" if self.namespace else "the ClusterRole"


class Permissions:
    """Of one account."""

    def __init__(self) -> None:
        self._missing: set[Rule] = set()

    def missing(self, rule: Rule, said: str) -> str:
        """Something was refused for the lack of a rule; gives the sentence that says what to do."""
        sentence = f"{said}; add to {rule.role}: {rule}"
        if rule not in self._missing:
            self._missing.add(rule)
            log.warning("a permission is missing: %s", sentence)
        return sentence

    def granted(self, rule: Rule) -> None:
        """It was not refused."""
        if rule in self._missing:
            self._missing.discard(rule)
            log.info("a permission that was missing is there: %s", rule)
