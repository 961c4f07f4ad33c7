"""Checks of the training-operator's ``--gang-scheduler-name`` that several scheduler modules share."""

from collections.abc import Callable
from typing import Final

from backend_plugin.core.scheduling.adapter import Detection
from backend_plugin.core.scheduling.capabilities import Capabilities

FLAG: Final = "--gang-scheduler-name"
BACKEND: Final = "backend"
OPERATOR: Final = "operator"
"""The two possible creators of a job's pod group: the operator and this server."""


def detect_without_operator(group: str) -> Callable[[Capabilities, str], Detection | None]:
    """Return a function that detects the API `group` if the operator is known to create no pod groups."""

    def detect(capabilities: Capabilities, _: str) -> Detection | None:
        # If the flag is unknown, the operator may overwrite a pod group that this server creates.
        if capabilities.operator_scheduler != "" or not capabilities.has_api(group):
            return None
        return Detection(why=f"the cluster has {group}, and the operator creates no pod groups")

    return detect


def deny_without_api(group: str) -> Callable[[Capabilities], str]:
    """Return a function that returns a reason if the cluster does not serve the API `group`, else ``""``."""

    def find_reason(capabilities: Capabilities) -> str:
        return f"the cluster has no {group}" if capabilities.has_api(group) is False else ""

    return find_reason


def deny_without_operator(group: str, creates_groups: Callable[[str], bool]) -> Callable[[Capabilities], str]:
    """Return a function that returns the reason why the operator cannot create pod groups; empty if it can.

    `creates_groups` returns true if the operator creates groups of this kind for a value of
    ``--gang-scheduler-name``.
    """

    def find_reason(capabilities: Capabilities) -> str:
        scheduler = capabilities.operator_scheduler
        if scheduler == "":
            return f"the training-operator runs without {FLAG}, and creates no groups"
        if scheduler is not None and not creates_groups(scheduler):
            return f"the training-operator runs with {FLAG}={scheduler}, and creates other groups"
        return deny_without_api(group)(capabilities)

    return find_reason


def deny_operator_groups(group: str) -> Callable[[Capabilities], str]:
    """Return a function that returns the reason why this server cannot create pod groups; empty if it can."""

    def find_reason(capabilities: Capabilities) -> str:
        if capabilities.operator_scheduler:
            ran = f"{FLAG}={capabilities.operator_scheduler}"
            return f"the training-operator runs with {ran}, and overwrites the groups of this server"
        return deny_without_api(group)(capabilities)

    return find_reason
