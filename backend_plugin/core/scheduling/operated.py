"""What the training-operator's ``--gang-scheduler-name`` means for those whose groups it may make.

Lives here: the sentences that their modules share. Does not: whose group which name asks for.
"""

from collections.abc import Callable
from typing import Final

from backend_plugin.core.scheduling.adapter import Seen
from backend_plugin.core.scheduling.findings import Findings

FLAG: Final = "--gang-scheduler-name"
PLUGIN: Final = "plugin"
OPERATOR: Final = "operator"
"""The styles: who makes the group of a job."""


def without_operator(group: str) -> Callable[[Findings, str], Seen | None]:
    """That a scheduler is there, and that we may make its groups."""

    def sees(found: Findings, _: str) -> Seen | None:
        # An operator of which this is not known may write its own idea over a group of ours.
        if found.operator_scheduler != "" or not found.has_api(group):
            return None
        return Seen(why=f"the cluster has {group}, and the training-operator runs without {FLAG}")

    return sees


def lacks(group: str) -> Callable[[Findings], str]:
    """Why a scheduler without its kinds is none."""

    def denied(found: Findings) -> str:
        return f"the cluster has no {group}" if found.has_api(group) is False else ""

    return denied


def unless_operator(group: str, is_asked: Callable[[str], bool]) -> Callable[[Findings], str]:
    """Why the operator does not make these groups; `is_asked` by the name that it runs with."""

    def denied(found: Findings) -> str:
        if found.operator_scheduler == "":
            return f"the training-operator runs without {FLAG}, and makes no groups"
        if found.operator_scheduler is not None and not is_asked(found.operator_scheduler):
            return (
                f"the training-operator runs with {FLAG}={found.operator_scheduler}, and makes other groups"
            )
        return lacks(group)(found)

    return denied


def unless_ours(group: str) -> Callable[[Findings], str]:
    """Why we cannot make these groups: an operator that makes some writes over those of the same name."""

    def denied(found: Findings) -> str:
        if found.operator_scheduler:
            ran = f"{FLAG}={found.operator_scheduler}"
            return f"the training-operator runs with {ran}, and writes its own groups over ours"
        return lacks(group)(found)

    return denied
