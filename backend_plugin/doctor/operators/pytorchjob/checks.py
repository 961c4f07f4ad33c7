"""Checks of the training operator: its API, its Deployment, its webhook, and whether it reconciles jobs."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_mappings, get_text, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.deployments import format_kubectl_name
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.operators import base

_DIALECT: Final = DIALECTS["PyTorchJob"]
_KIND: Final = _DIALECT.name
PROGRAM: Final = base.Program(_DIALECT.operator, _DIALECT.operator)
_INSTALL: Final = _DIALECT.installation
_OLDEST: Final = (1, 7)
_FIELDS: Final = tuple(
    ("runPolicy", field) for field in ("suspend", "schedulingPolicy", "ttlSecondsAfterFinished")
)
"""Fields of a run policy that the connector writes; the newest exists since training-operator 1.7."""
_ASLEEP_AFTER: Final = timedelta(minutes=2)
"""The age at which a job must have a status; a running operator sets it within one or two seconds."""
_NEVER: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

CHECKS: Final = CheckList()


def _list_jobs(facts: Facts) -> Sequence[Manifest]:
    return [each for each in facts.get_objects(Subject.JOBS) if get_text(each, "kind") in ("", _KIND)]


@CHECKS.add(Subject.JOB_KINDS)
def _check_operator_crd_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster serves the kind PyTorchJob."""
    if not any(get_text(each, "kind") == _KIND for each in facts.get_objects(Subject.JOB_KINDS)):
        yield Violation("the cluster has no PyTorchJobs of kubeflow.org/v1", _INSTALL)


@CHECKS.add(Subject.JOB_SCHEMA)
def _check_operator_crd_outdated(facts: Facts) -> Iterator[Violation]:
    """Check that the kind PyTorchJob has the run policy fields that the connector writes."""
    for kind, version in base.iter_schema_versions(facts):
        if kind not in ("", _KIND) or get_text(version, "name") != _DIALECT.resource.version:
            continue
        if missing := base.list_missing_fields(version, _FIELDS):
            yield Violation(f"the kind PyTorchJob has no spec.{missing[0]}: it is older than 1.7", _INSTALL)


@CHECKS.add(Subject.DEPLOYMENTS, Subject.JOBS)
def _check_operator_missing(facts: Facts) -> Iterator[Violation]:
    """Check that a Deployment runs the training-operator, or a PyTorchJob has a status."""
    if not PROGRAM.list_deployments(facts) and not any(map(_has_status, _list_jobs(facts))):
        yield Violation("no Deployment runs the training-operator, and no PyTorchJob has a status", _INSTALL)


@CHECKS.add(Subject.DEPLOYMENTS)
def _check_operator_down(facts: Facts) -> Iterator[Violation]:
    """Check that the training-operator has a ready pod."""
    for each in PROGRAM.list_deployments(facts):
        if not deployments.is_ready(each):
            yield base.report_no_ready_pod("the training-operator", each)


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_operator_outdated(facts: Facts) -> Iterator[Violation]:
    """Check that the training-operator is 1.7 or newer."""
    for each in PROGRAM.list_deployments(facts):
        version = deployments.find_version(each)
        if version is not None and version < _OLDEST:
            yield Violation(
                f"the training-operator is {version[0]}.{version[1]}, and suspended jobs need 1.7 or newer",
                _INSTALL,
            )


@CHECKS.add(Subject.DEPLOYMENTS)
def _check_operator_wrong_scope(facts: Facts) -> Iterator[Violation]:
    """Check that the training-operator watches the namespace of the task."""
    found = [
        set(deployments.list_flag_values(each, "namespace")) - {""}
        for each in PROGRAM.list_deployments(facts)
    ]
    if found and all(namespaces and facts.namespace not in namespaces for namespaces in found):
        there = ", ".join(sorted(set().union(*found)))
        yield Violation(
            f"the training-operator watches only the namespace {there}, not {facts.namespace}",
            f"kubectl edit {format_kubectl_name(PROGRAM.list_deployments(facts)[0])}  # remove "
            f"--namespace={there} from the args",
        )


@CHECKS.add(Subject.JOBS)
def _check_operator_not_reconciling(facts: Facts) -> Iterator[Violation]:
    """Check that PyTorchJobs get a status within two minutes."""
    # If a younger job has a status, the operator runs, so the status is missing for another reason.
    jobs = _list_jobs(facts)
    seen = max((_get_creation_time(each) for each in jobs if _has_status(each)), default=_NEVER)
    late = [
        each
        for each in jobs
        if seen < _get_creation_time(each) < facts.now - _ASLEEP_AFTER
        # Another controller reconciles a job with `managedBy`.
        and not get_text(each, "spec", "runPolicy", "managedBy")
    ]
    if late:
        usual = "deployment/training-operator -n kubeflow"
        operator = next(map(format_kubectl_name, PROGRAM.list_deployments(facts)), usual)
        yield Violation(
            f"the training-operator has set no status on {len(late)} PyTorchJobs for two minutes: "
            + ", ".join(deployments.get_name(each) for each in late[:3]),
            f"kubectl rollout restart {operator}",
        )


def _get_creation_time(job: Manifest) -> datetime:
    return get_time(job, "metadata", "creationTimestamp") or _NEVER


def _has_status(job: Manifest) -> bool:
    return bool(get_mappings(job, "status", "conditions"))


@CHECKS.add(Subject.INVALID_TRIAL)
def _check_webhook_unreachable(facts: Facts) -> Iterator[Violation]:
    """Check that the webhooks for new jobs and pods respond to dry runs."""
    yield from base.report_unreachable_webhook(facts, "-n kubeflow training-operator")


@CHECKS.add(Subject.INVALID_TRIAL, level=Severity.WARNING)
def _check_webhook_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the operator's webhook rejects an invalid job."""
    if base.accepts_invalid_job(facts, _check_operator_missing):
        yield Violation(
            "a job with two masters is not refused: the operator's webhook is not active", _INSTALL
        )
