"""Checks of the training operator: its API, its Deployment, its webhook, and whether it reconciles jobs."""

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final

from backend_plugin.core.reading import entries, moment, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject

_INSTALL: Final = (
    "kubectl apply --server-side -k "
    '"github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.3"'
)
_OLDEST: Final = (1, 7)
_FIELDS: Final = ("suspend", "schedulingPolicy", "ttlSecondsAfterFinished")
"""Fields of a run policy that the connector writes; the newest exists since 1.7."""
_ASLEEP_AFTER: Final = 120.0
"""Seconds without a status; a running operator needs one or two."""
_NEVER: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_USUAL: Final = "deployment/training-operator -n kubeflow"
_HOOK: Final = "failed calling webhook"


def _no_kind(facts: Facts) -> Iterator[Found]:
    if not any(text(each, "kind") == "PyTorchJob" for each in facts.of(Subject.JOB_KINDS)):
        yield Found(sentence="the cluster has no PyTorchJobs of kubeflow.org/v1", remedy=_INSTALL)


def _old_kind(facts: Facts) -> Iterator[Found]:
    for schema in facts.of(Subject.JOB_SCHEMA):
        versions = [each for each in entries(section(schema, "spec"), "versions") if each.get("name") == "v1"]
        for each in versions:
            policy = section(
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
                yield Found(
                    sentence=f"the kind PyTorchJob has no spec.runPolicy.{lacking[0]}: it is older than 1.7",
                    remedy=_INSTALL,
                )


def _missing(facts: Facts) -> Iterator[Found]:
    if not deployments.operators(facts) and not any(map(_has_status, facts.of(Subject.JOBS))):
        yield Found(
            sentence="no Deployment runs the training-operator, and no PyTorchJob has a status",
            remedy=_INSTALL,
        )


def _down(facts: Facts) -> Iterator[Found]:
    for each in deployments.operators(facts):
        if not deployments.is_ready(each):
            yield Found(
                sentence=f"the training-operator has no ready pod: {deployments.told(each)}",
                remedy=f"kubectl describe {deployments.told(each)}; kubectl logs {deployments.told(each)}",
            )


def _several(facts: Facts) -> Iterator[Found]:
    found = [each for each in deployments.operators(facts) if deployments.is_ready(each)]
    wide = [each for each in found if not any(deployments.flag(each, "namespace"))]
    if len(wide) > 1:
        yield Found(
            sentence=f"{len(wide)} training-operators watch all namespaces, and conflict with each other: "
            + ", ".join(map(deployments.told, wide)),
            remedy=f"kubectl delete {deployments.told(wide[-1])}  # or the one that is not maintained",
        )


def _old(facts: Facts) -> Iterator[Found]:
    for each in deployments.operators(facts):
        version = deployments.version(each)
        if version is not None and version < _OLDEST:
            yield Found(
                sentence=f"the training-operator is {version[0]}.{version[1]}, and suspended jobs need "
                "1.7 or newer",
                remedy=_INSTALL,
            )


def _elsewhere(facts: Facts) -> Iterator[Found]:
    found = [set(deployments.flag(each, "namespace")) - {""} for each in deployments.operators(facts)]
    if found and all(said and facts.namespace not in said for said in found):
        there = ", ".join(sorted(set().union(*found)))
        yield Found(
            sentence=f"the training-operator watches only the namespace {there}, not {facts.namespace}",
            remedy=f"kubectl edit {deployments.told(deployments.operators(facts)[0])}"
            f"  # remove --namespace={there} from the args",
        )


def _not_enabled(facts: Facts) -> Iterator[Found]:
    for each in deployments.operators(facts):
        schemes = deployments.flag(each, "enable-scheme")
        if schemes and "pytorchjob" not in (said.lower() for said in schemes):
            yield Found(
                sentence=f"the training-operator reconciles only {', '.join(schemes)}: "
                f"{deployments.told(each)}",
                remedy=f"kubectl edit {deployments.told(each)}  # add --enable-scheme=pytorchjob to the args",
            )


def _asleep(facts: Facts) -> Iterator[Found]:
    """Report jobs without a status, unless a younger job has one: then the reason is not the operator."""
    jobs = facts.of(Subject.JOBS)
    looked_at = max((_made(each) for each in jobs if _has_status(each)), default=_NEVER)
    late = [each for each in jobs if _waits(each, facts) and _made(each) > looked_at]
    if late:
        operator = next(map(deployments.told, deployments.operators(facts)), _USUAL)
        yield Found(
            sentence=f"the training-operator has set no status on {len(late)} PyTorchJobs for two minutes: "
            + ", ".join(deployments.name(each) for each in late[:3]),
            remedy=f"kubectl rollout restart {operator}",
        )


def _waits(job: Manifest, facts: Facts) -> bool:
    """True if a job has no status after the time limit; a job with `managedBy` needs none."""
    managed = text(section(job, "spec", "runPolicy"), "managedBy")
    is_late = (facts.now - _made(job)).total_seconds() > _ASLEEP_AFTER
    return is_late and not _has_status(job) and not managed


def _made(job: Manifest) -> datetime:
    return moment(section(job, "metadata"), "creationTimestamp") or _NEVER


def _has_status(job: Manifest) -> bool:
    return bool(entries(section(job, "status"), "conditions"))


def _hook_away(facts: Facts) -> Iterator[Found]:
    for reply in (facts.job_reply, facts.invalid_reply, *facts.pod_replies.values()):
        if _HOOK in reply.message:
            yield Found(
                sentence=f"a webhook does not answer: {reply.message}",
                remedy="kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations; "
                "kubectl get endpoints -n kubeflow training-operator",
            )
            return


def _no_hook(facts: Facts) -> Iterator[Found]:
    """Report a missing webhook, unless the training operator itself is missing."""
    is_missing = not {Subject.DEPLOYMENTS, Subject.JOBS} & {*facts.unseen} and any(_missing(facts))
    if facts.invalid_reply.stored is not None and not is_missing:
        yield Found(
            sentence="a job with two masters is not refused: the operator's webhook is not active",
            remedy=_INSTALL,
        )


CHECKS: Final = (
    Check(
        id="operator-kind",
        level=Level.ERROR,
        proves="the cluster has PyTorchJobs",
        judge=_no_kind,
        needs=(Subject.JOB_KINDS,),
    ),
    Check(
        id="operator-kind-old",
        level=Level.ERROR,
        proves="the kind PyTorchJob has the required fields",
        judge=_old_kind,
        needs=(Subject.JOB_SCHEMA,),
    ),
    Check(
        id="operator-missing",
        level=Level.ERROR,
        proves="a Deployment runs the training-operator, or one of its jobs shows that it runs",
        judge=_missing,
        needs=(Subject.DEPLOYMENTS, Subject.JOBS),
    ),
    Check(
        id="operator-down",
        level=Level.ERROR,
        proves="the training-operator has a ready pod",
        judge=_down,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-twice",
        level=Level.WARNING,
        proves="at most one training-operator watches all namespaces",
        judge=_several,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-old",
        level=Level.WARNING,
        proves="the training-operator is 1.7 or newer",
        judge=_old,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-elsewhere",
        level=Level.ERROR,
        proves="the training-operator watches the namespace",
        judge=_elsewhere,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-scheme",
        level=Level.ERROR,
        proves="the training-operator reconciles PyTorchJobs",
        judge=_not_enabled,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="operator-asleep",
        level=Level.ERROR,
        proves="PyTorchJobs get a status within two minutes",
        judge=_asleep,
        needs=(Subject.JOBS,),
    ),
    Check(
        id="webhook-away",
        level=Level.ERROR,
        proves="the webhooks for new jobs answer",
        judge=_hook_away,
        needs=(Subject.INVALID_TRIAL,),
    ),
    Check(
        id="webhook-missing",
        level=Level.WARNING,
        proves="the operator's webhook rejects an invalid job",
        judge=_no_hook,
        needs=(Subject.INVALID_TRIAL,),
    ),
)
