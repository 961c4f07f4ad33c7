"""The rules of the platform for namespaces and output prefixes, which no cluster checks.

Lives here: which namespace and which prefix a call may name. Does not: who calls, see `front`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Run
from backend_plugin.shell.prefixes import Prefixes

SYSTEM: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""Namespaces of Kubernetes itself, in which no task runs."""
ANY: Final = "*"
FLYTES: Final = "{{ project }}-{{ domain }}"
"""Flyte's default of `namespace_mapping.template`."""
# Newer releases of Flyte also have an organisation, which no connector receives.
_UNKNOWN: Final = re.compile(r"\{\{[^{}]{0,200}\}\}")
_WILD: Final = re.compile(r"([*?[])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The namespaces in which tasks may run, and the places to which they may write."""

    prefixes: Prefixes
    namespaces: Sequence[str] = (ANY,)
    """Names, or patterns of the shell."""
    refused: Collection[str] = ()
    """Names that are refused beside those of `SYSTEM`."""
    template: str = ANY
    """The namespace of a project and domain, as in Flyte's own setting; or a pattern."""

    def serves(self, namespace: str) -> bool:
        """True if this server may touch jobs of the namespace."""
        if namespace in SYSTEM or namespace in self.refused:
            return False
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def why_not(self, namespace: str, prefix: str) -> str | None:
        """Return why nothing is told about a job there, in a sentence; None if it may be."""
        if not self.serves(namespace):
            return f"namespace {namespace!r} is not served by this connector"
        return self.prefixes.why_not(prefix)

    def problems(self, run: Run) -> Iterator[Problem]:
        """Yield each reason for which this attempt gets no job."""
        if (refusal := self._refusal(run)) is not None:
            message, remedy = refusal
            yield Problem(
                field="task_execution_metadata.namespace",
                value=run.namespace,
                message=message,
                remedy=remedy,
            )
        if (why := self.prefixes.why_not(run.output_prefix)) is not None:
            yield Problem(
                field="output_prefix",
                value=run.output_prefix,
                message=why,
                remedy="add it to server.output-prefixes",
            )

    def _refusal(self, run: Run) -> tuple[str, str] | None:
        """Return why the namespace is refused, with the remedy; None if it is not."""
        if run.namespace in SYSTEM or run.namespace in self.refused:
            return "is a namespace in which no task runs", "run the task in the namespace of its project"
        if not self.serves(run.namespace):
            remedy = "add it to server.namespaces, or send the task elsewhere"
            return "is a namespace that this connector does not serve", remedy
        if not fnmatchcase(run.namespace, self._expected(run)):
            return (
                f"is not the namespace of project {run.project!r} and domain {run.domain!r}",
                "write namespace_mapping.template of FlyteAdmin in server.namespace-template",
            )
        return None

    def _expected(self, run: Run) -> str:
        """Return the pattern of the namespace in which tasks of this project and domain run."""
        named = re.sub(r"\{\{ *project *\}\}", lambda _: _literal(run.project), self.template)
        named = re.sub(r"\{\{ *domain *\}\}", lambda _: _literal(run.domain), named)
        return _UNKNOWN.sub(ANY, named)


def _literal(name: str) -> str:
    """Return the pattern that matches this name only."""
    return _WILD.sub(r"[\1]", name)
