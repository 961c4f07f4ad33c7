"""Checks of the API server and of the job's namespace."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.doctor.check import CheckList, Violation
from backend_plugin.doctor.facts import Facts, Subject

CHECKS: Final = CheckList()


@CHECKS.add()
def _check_api_unreachable(facts: Facts) -> Iterator[Violation]:
    """The API server answers."""
    if facts.unreachable:
        yield Violation(
            sentence=f"the API server cannot be reached: {facts.unreachable}",
            remedy=facts.unreachable_remedy
            or "kubectl version  # if it answers, give this command the same --context and --kubeconfig",
        )


@CHECKS.add(Subject.NAMESPACE)
def _check_namespace_missing(facts: Facts) -> Iterator[Violation]:
    """The namespace exists."""
    if not facts.get_objects(Subject.NAMESPACE):
        yield Violation(
            sentence=f"there is no namespace {facts.namespace}",
            remedy=f"kubectl create namespace {facts.namespace}  # or name Flyte's project-domain",
        )
