"""Logs each missing RBAC rule once, with the rule to add, and logs when it is granted."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import ApiResource
from backend_plugin.shell.cluster import ClusterUnavailable

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """A rule that a role has to contain."""

    resource: ApiResource
    verbs: tuple[str, ...]
    namespace: str = ""
    """The namespace of the rule; empty for all namespaces."""
    sub: str = ""
    """A subresource, such as ``log`` of pods."""

    def __str__(self) -> str:
        """Return the rule as YAML for a role."""
        group, verbs = self.resource.group or '""', ", ".join(self.verbs)
        plural = f"{self.resource.plural}/{self.sub}" if self.sub else self.resource.plural
        return f"{{apiGroups: [{group}], resources: [{plural}], verbs: [{verbs}]}}"


class Permissions:
    """Stores which RBAC rules an account lacks, and logs each rule when first missing and when granted.

    The rules belong in a Role of each namespace if `namespaces` are configured, else in one ClusterRole.
    """

    def __init__(self, namespaces: Sequence[str]) -> None:
        self._namespaces = namespaces
        self._missing: set[PolicyRule] = set()

    def get_scope(self, namespace: str) -> str:
        """Return the namespace of the role that permits requests in `namespace`; empty for a ClusterRole."""
        return namespace if self._namespaces else ""

    def build_rule(self, resource: ApiResource, namespace: str, *verbs: str, sub: str = "") -> PolicyRule:
        """Return the rule that permits requests for a resource in `namespace`."""
        return PolicyRule(resource=resource, verbs=verbs, namespace=self.get_scope(namespace), sub=sub)

    def record_missing(self, rule: PolicyRule, message: str) -> str:
        """Record that a request failed because `rule` is missing. Return a message with the rule to add."""
        role = f"a Role in namespace {rule.namespace}" if rule.namespace else "the ClusterRole"
        sentence = f"{message}; add to {role}: {rule}"
        if rule not in self._missing:
            self._missing.add(rule)
            log.warning("a permission is missing: %s", sentence)
        return sentence

    def build_unavailable(self, answer: ApiError, rule: PolicyRule) -> ClusterUnavailable:
        """Return a transient error for an error response, even if `rule` is missing: an admin may add it."""
        if answer.is_not_authorized:
            return ClusterUnavailable(self.record_missing(rule, answer.message))
        return ClusterUnavailable(f"the API server answers {answer}")

    def record_granted(self, rule: PolicyRule) -> None:
        """Record that a request that needs `rule` succeeded."""
        if rule in self._missing:
            self._missing.discard(rule)
            log.info("a missing permission was granted: %s", rule)
