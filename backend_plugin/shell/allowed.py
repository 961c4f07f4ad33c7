"""What this server does not do for anybody, whatever the cluster would say: the platform's allow-lists."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Run
from backend_plugin.shell.prefixes import Prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Where tasks may run, and where they may write."""

    prefixes: Prefixes
    namespaces: Sequence[str] = ("*",)
    """Names, or patterns as a shell has them."""

    def serves(self, namespace: str) -> bool:
        """Whether jobs of that namespace are this server's business."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def problems(self, run: Run) -> Iterator[Problem]:
        """Every reason for which this attempt gets no job; none is the task's own."""
        if not self.serves(run.namespace):
            yield Problem(
                field="task_execution_metadata.namespace",
                value=run.namespace,
                message="is a namespace that this connector does not serve",
                remedy="add it to server.namespaces, or send the task elsewhere",
            )
        if (why := self.prefixes.why_not(run.output_prefix)) is not None:
            yield Problem(
                field="output_prefix",
                value=run.output_prefix,
                message=why,
                remedy="add it to server.output-prefixes",
            )
