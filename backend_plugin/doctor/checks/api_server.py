"""Checks of the API server and of the job's namespace."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_OLDEST: Final = (1, 27)
"""The first version in which `fieldValidation=Strict`, which rejects unknown fields, is stable."""
_APART: Final = timedelta(seconds=30)

CHECKS: Final = CheckList()


@CHECKS.add()
def _check_api_unreachable(facts: Facts) -> Iterator[Violation]:
    """Check that the API server answers."""
    if facts.unreachable:
        yield Violation(
            facts.unreachable,
            facts.unreachable_remedy
            or "kubectl version  # if it answers, give this command the same --context and --kubeconfig",
        )


@CHECKS.add(level=Severity.WARNING)
def _check_api_version(facts: Facts) -> Iterator[Violation]:
    """Check that the API server is 1.27 or newer."""
    found = _VERSION.match(facts.version)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        yield Violation(
            f"the API server is {facts.version}, which does not validate strictly; 1.27 does",
            "upgrade the control plane to 1.27 or newer",
        )


@CHECKS.add(level=Severity.WARNING)
def _check_clock_skew(facts: Facts) -> Iterator[Violation]:
    """Check that the clock of the cluster and the local clock differ by at most 30 s."""
    if abs(facts.ahead) > _APART:
        way = "ahead of" if facts.ahead > timedelta(0) else "behind"
        yield Violation(
            f"the cluster's clock is {abs(facts.ahead).total_seconds():.0f} s {way} the local clock",
            "timedatectl set-ntp true  # on the machine whose clock is wrong",
        )


@CHECKS.add(Subject.NAMESPACE)
def _check_namespace_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the namespace exists."""
    if not facts.get_objects(Subject.NAMESPACE):
        yield Violation(
            f"there is no namespace {facts.namespace}",
            f"kubectl create namespace {facts.namespace}  # or name Flyte's project-domain",
        )
