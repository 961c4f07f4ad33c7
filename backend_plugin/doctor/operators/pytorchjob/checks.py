"""Checks of the training operator: its API, its Deployment, its webhook, and whether it reconciles jobs."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

_DIALECT: Final = DIALECTS["PyTorchJob"]
_KIND: Final = _DIALECT.name
_OPERATOR: Final = _DIALECT.operator
_INSTALL: Final = _DIALECT.installation
_OLDEST: Final = (1, 7)
_FIELDS: Final = ("suspend", "schedulingPolicy", "ttlSecondsAfterFinished")
"""Fields of a run policy that the connector writes; the newest exists since 1.7."""
_ASLEEP_AFTER: Final = 120.0
"""Seconds without a status; a running operator needs one or two."""
_NEVER: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_USUAL: Final = "deployment/training-operator -n kubeflow"
_HOOK: Final = "failed calling webhook"


def is_operator(deployment: Manifest) -> bool:
    """True if a Deployment runs the training operator."""
    return deployments.get_name(deployment) == _OPERATOR or deployments.has_program(deployment, _OPERATOR)


def _list_operators(facts: Facts) -> Sequence[Manifest]:
    return [each for each in facts.get_objects(Subject.DEPLOYMENTS) if is_operator(each)]


def _list_jobs(facts: Facts) -> Sequence[Manifest]:
    return [each for each in facts.get_objects(Subject.JOBS) if get_text(each, "kind") in ("", _KIND)]


def _check_operator_crd_missing(facts: Facts) -> Iterator[Violation]:
    if not any(get_text(each, "kind") == _KIND for each in facts.get_objects(Subject.JOB_KINDS)):
        yield Violation(sentence="the cluster has no PyTorchJobs of kubeflow.org/v1", remedy=_INSTALL)


def _check_operator_crd_outdated(facts: Facts) -> Iterator[Violation]:
    for schema in facts.get_objects(Subject.JOB_SCHEMA):
        if get_text(schema, "spec", "names", "kind") not in ("", _KIND):
            continue
        for each in get_mappings(schema, "spec", "versions"):
            if get_text(each, "name") != _DIALECT.resource.version:
                continue
            policy = get_mapping(
                each,
                "schema",
                "openAPIV3Schema",
                "properties",
                "spec",
                "properties",
                "runPolicy",
                "properties",
            )
            lacking = [field for field in _FIELDS if field not in policy]
            if lacking:
                yield Violation(
                    sentence=f"the kind PyTorchJob has no spec.runPolicy.{lacking[0]}: it is older than 1.7",
                    remedy=_INSTALL,
                )


def _check_operator_missing(facts: Facts) -> Iterator[Violation]:
    if not _list_operators(facts) and not any(map(_has_status, _list_jobs(facts))):
        yield Violation(
            sentence="no Deployment runs the training-operator, and no PyTorchJob has a status",
            remedy=_INSTALL,
        )


def _check_operator_down(facts: Facts) -> Iterator[Violation]:
    for each in _list_operators(facts):
        if not deployments.is_ready(each):
            yield Violation(
                sentence=f"the training-operator has no ready pod: {deployments.format_kubectl_name(each)}",
                remedy=f"kubectl describe {deployments.format_kubectl_name(each)}; kubectl logs "
                f"{deployments.format_kubectl_name(each)}",
            )


def _check_operator_duplicate(facts: Facts) -> Iterator[Violation]:
    found = [each for each in _list_operators(facts) if deployments.is_ready(each)]
    wide = [each for each in found if not any(deployments.list_flag_values(each, "namespace"))]
    if len(wide) > 1:
        yield Violation(
            sentence=f"{len(wide)} training-operators watch all namespaces, and conflict with each other: "
            + ", ".join(map(deployments.format_kubectl_name, wide)),
            remedy=f"kubectl delete {deployments.format_kubectl_name(wide[-1])}  # or the one that is "
            "not maintained",
        )


def _check_operator_outdated(facts: Facts) -> Iterator[Violation]:
    for each in _list_operators(facts):
        version = deployments.find_version(each)
        if version is not None and version < _OLDEST:
            yield Violation(
                sentence=f"the training-operator is {version[0]}.{version[1]}, and suspended jobs need "
                "1.7 or newer",
                remedy=_INSTALL,
            )


def _check_operator_wrong_scope(facts: Facts) -> Iterator[Violation]:
    found = [set(deployments.list_flag_values(each, "namespace")) - {""} for each in _list_operators(facts)]
    if found and all(said and facts.namespace not in said for said in found):
        there = ", ".join(sorted(set().union(*found)))
        yield Violation(
            sentence=f"the training-operator watches only the namespace {there}, not {facts.namespace}",
            remedy=f"kubectl edit {deployments.format_kubectl_name(_list_operators(facts)[0])}"
            f"  # remove --namespace={there} from the args",
        )


def _check_operator_scheme(facts: Facts) -> Iterator[Violation]:
    for each in _list_operators(facts):
        schemes = deployments.list_flag_values(each, "enable-scheme")
        if schemes and "pytorchjob" not in (said.lower() for said in schemes):
            yield Violation(
                sentence=f"the training-operator reconciles only {', '.join(schemes)}: "
                f"{deployments.format_kubectl_name(each)}",
                remedy=f"kubectl edit {deployments.format_kubectl_name(each)}  # add "
                "--enable-scheme=pytorchjob to the args",
            )


def _check_operator_not_reconciling(facts: Facts) -> Iterator[Violation]:
    """Report jobs without a status, unless a younger job has one: then the reason is not the operator."""
    jobs = _list_jobs(facts)
    looked_at = max((_get_creation_time(each) for each in jobs if _has_status(each)), default=_NEVER)
    late = [each for each in jobs if _is_overdue(each, facts) and _get_creation_time(each) > looked_at]
    if late:
        operator = next(map(deployments.format_kubectl_name, _list_operators(facts)), _USUAL)
        yield Violation(
            sentence=f"the training-operator has set no status on {len(late)} PyTorchJobs for two minutes: "
            + ", ".join(deployments.get_name(each) for each in late[:3]),
            remedy=f"kubectl rollout restart {operator}",
        )


def _is_overdue(job: Manifest, facts: Facts) -> bool:
    """True if a job has no status after the time limit; a job with `managedBy` needs none."""
    managed = get_text(job, "spec", "runPolicy", "managedBy")
    is_late = (facts.now - _get_creation_time(job)).total_seconds() > _ASLEEP_AFTER
    return is_late and not _has_status(job) and not managed


def _get_creation_time(job: Manifest) -> datetime:
    return get_time(job, "metadata", "creationTimestamp") or _NEVER


def _has_status(job: Manifest) -> bool:
    return bool(get_mappings(job, "status", "conditions"))


def _check_webhook_unreachable(facts: Facts) -> Iterator[Violation]:
    for reply in (facts.job_reply, facts.invalid_reply, *facts.pod_replies.values()):
        if _HOOK in reply.message:
            yield Violation(
                sentence=f"a webhook does not answer: {reply.message}",
                remedy="kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations; "
                "kubectl get endpoints -n kubeflow training-operator",
            )
            return


def _check_webhook_missing(facts: Facts) -> Iterator[Violation]:
    """Report a missing webhook, unless the training operator itself is missing."""
    is_missing = not {Subject.DEPLOYMENTS, Subject.JOBS} & {*facts.unseen} and any(
        _check_operator_missing(facts)
    )
    if facts.invalid_reply.stored is not None and not is_missing:
        yield Violation(
            sentence="a job with two masters is not refused: the operator's webhook is not active",
            remedy=_INSTALL,
        )


CHECKS: Final = (
    Check(
        id="operator-crd-missing",
        level=Severity.ERROR,
        proves="the cluster has PyTorchJobs",
        judge=_check_operator_crd_missing,
        needs=(Subject.JOB_KINDS,),
    ),
    Check(
        id="operator-crd-outdated",
        level=Severity.ERROR,
        proves="the kind PyTorchJob has the required fields",
        judge=_check_operator_crd_outdated,
        needs=(Subject.JOB_SCHEMA,),
    ),
    Check(
        id="operator-missing",
        level=Severity.ERROR,
        proves="a Deployment runs the training-operator, or one of its jobs shows that it runs",
        judge=_check_operator_missing,
        needs=(Subject.DEPLOYMENTS, Subject.JOBS),
    ),
    Check(
        id="operator-down",
        level=Severity.ERROR,
        proves="the training-operator has a ready pod",
        judge=_check_operator_down,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-duplicate",
        level=Severity.WARNING,
        proves="at most one training-operator watches all namespaces",
        judge=_check_operator_duplicate,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-outdated",
        level=Severity.WARNING,
        proves="the training-operator is 1.7 or newer",
        judge=_check_operator_outdated,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-wrong-scope",
        level=Severity.ERROR,
        proves="the training-operator watches the namespace",
        judge=_check_operator_wrong_scope,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-scheme",
        level=Severity.ERROR,
        proves="the training-operator reconciles PyTorchJobs",
        judge=_check_operator_scheme,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-not-reconciling",
        level=Severity.ERROR,
        proves="PyTorchJobs get a status within two minutes",
        judge=_check_operator_not_reconciling,
        needs=(Subject.JOBS,),
    ),
    Check(
        id="webhook-unreachable",
        level=Severity.ERROR,
        proves="the webhooks for new jobs answer",
        judge=_check_webhook_unreachable,
        needs=(Subject.INVALID_TRIAL,),
    ),
    Check(
        id="webhook-missing",
        level=Severity.WARNING,
        proves="the operator's webhook rejects an invalid job",
        judge=_check_webhook_missing,
        needs=(Subject.INVALID_TRIAL,),
    ),
)
