"""Checks of the API server and of the job's namespace."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from backend_plugin.core.reading import section, text
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_OLDEST: Final = (1, 27)
"""The first version in which `fieldValidation=Strict`, which rejects unknown fields, is stable."""
_APART: Final = timedelta(seconds=30)


def _unreachable(facts: Facts) -> Iterator[Found]:
    if facts.unreachable:
        yield Found(
            sentence=f"the API server cannot be reached: {facts.unreachable}",
            remedy=facts.unreachable_remedy
            or "kubectl version  # if it answers, give this command the same --context and --kubeconfig",
        )


def _old(facts: Facts) -> Iterator[Found]:
    found = _VERSION.match(facts.version)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        yield Found(
            sentence=f"the API server is {facts.version}, which does not validate strictly; 1.27 does",
            remedy="upgrade the control plane to 1.27 or newer",
        )


def _apart(facts: Facts) -> Iterator[Found]:
    if abs(facts.ahead) > _APART:
        way = "ahead of" if facts.ahead > timedelta(0) else "behind"
        yield Found(
            sentence=f"the cluster's clock is {abs(facts.ahead).total_seconds():.0f} s {way} the local clock",
            remedy="timedatectl set-ntp true  # on the machine whose clock is wrong",
        )


def _no_namespace(facts: Facts) -> Iterator[Found]:
    if not facts.of(Subject.NAMESPACE):
        yield Found(
            sentence=f"there is no namespace {facts.namespace}",
            remedy=f"kubectl create namespace {facts.namespace}  # or name Flyte's project-domain",
        )


def _ending(facts: Facts) -> Iterator[Found]:
    for each in facts.of(Subject.NAMESPACE):
        if text(section(each, "metadata"), "deletionTimestamp"):
            yield Found(
                sentence=f"the namespace {facts.namespace} is being deleted, and accepts no new objects",
                remedy=f"kubectl get namespace {facts.namespace} -o jsonpath='{{.status.conditions}}'",
            )


UNREACHABLE: Final = Check(
    id="api-unreachable",
    level=Level.ERROR,
    proves="the API server answers",
    judge=_unreachable,
)
CHECKS: Final = (
    UNREACHABLE,
    Check(id="api-version", level=Level.WARNING, proves="the API server is 1.27 or newer", judge=_old),
    Check(
        id="clock-skew",
        level=Level.WARNING,
        proves="the clock of the cluster and the local clock differ by at most 30 s",
        judge=_apart,
    ),
    Check(
        id="namespace-missing",
        level=Level.ERROR,
        proves="the namespace exists",
        judge=_no_namespace,
        needs=(Subject.NAMESPACE,),
    ),
    Check(
        id="namespace-ending",
        level=Level.ERROR,
        proves="the namespace is not being deleted",
        judge=_ending,
        needs=(Subject.NAMESPACE,),
    ),
)
