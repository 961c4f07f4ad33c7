"""The namespaces and output prefixes that this server accepts; the cluster itself does not restrict them."""

import glob
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt
from backend_plugin.core.pod_rules.name_rules import check_dns_label
from backend_plugin.shell.output_prefixes import OutputPrefixes, is_prefix

SYSTEM: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""The namespaces of Kubernetes itself; tasks do not run there."""
ANY: Final = "*"
FLYTES: Final = "{{ project }}-{{ domain }}"
"""The default value of Flyte's `namespace_mapping.template`."""
# Newer Flyte releases also have {{ org }}, but a connector does not receive the organisation.
_UNKNOWN: Final = re.compile(r"\{\{[^{}]{0,200}\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowlist:
    """The namespaces and output prefixes that this server accepts for tasks."""

    prefixes: OutputPrefixes
    namespaces: Sequence[str] = (ANY,)
    """The names of the allowed namespaces, or shell patterns."""
    refused: Collection[str] = ()
    """The names of namespaces that are rejected in addition to `SYSTEM`."""
    template: str = ANY
    """The namespace for each project and domain: a template as in Flyte's settings, or a shell pattern."""

    def is_served(self, namespace: str) -> bool:
        """True if the settings allow this server to read and change jobs in the namespace."""
        if namespace in SYSTEM or namespace in self.refused:
            return False
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def find_rejection_reason(self, namespace: str, prefix: str) -> str | None:
        """Return why calls for this namespace and output prefix are rejected; None if they are allowed."""
        if not self.is_served(namespace):
            return f"this connector does not serve namespace {namespace!r}"
        return self.prefixes.find_rejection_reason(prefix)

    def check_attempt(self, run: Attempt) -> Iterator[Problem]:
        """Yield a problem if the attempt's namespace is not allowed, and one if its output prefix is not."""
        if (refusal := self._find_namespace_rejection(run)) is not None:
            field = "task_execution_metadata.namespace"
            yield Problem(field=field, value=run.namespace, message=refusal[0], remedy=refusal[1])
        if (why := self.prefixes.find_rejection_reason(run.output_prefix)) is not None:
            remedy = "add it to server.output-prefixes"
            if not is_prefix(run.output_prefix):
                remedy = "use an output prefix such as s3://bucket/directory"
            yield Problem(field="output_prefix", value=run.output_prefix, message=why, remedy=remedy)

    def _find_namespace_rejection(self, run: Attempt) -> tuple[str, str] | None:
        if check_dns_label(run.namespace):
            return "is not the name of a namespace", "write lower-case letters, digits and '-'"
        if run.namespace in SYSTEM or run.namespace in self.refused:
            return (
                "is a system or refused namespace, in which no task may run",
                "run the task in the namespace of its project",
            )
        if not self.is_served(run.namespace):
            remedy = "add it to server.namespaces, or run the task in another namespace"
            return "is a namespace that this connector does not serve", remedy
        if not fnmatchcase(run.namespace, self._build_namespace_pattern(run)):
            return (
                f"is not the namespace of project {run.project!r} and domain {run.domain!r}",
                "set server.namespace-template to namespace_mapping.template of FlyteAdmin",
            )
        return None

    def _build_namespace_pattern(self, run: Attempt) -> str:
        named = re.sub(r"\{\{ *project *\}\}", lambda _: glob.escape(run.project), self.template)
        named = re.sub(r"\{\{ *domain *\}\}", lambda _: glob.escape(run.domain), named)
        return _UNKNOWN.sub(ANY, named)
