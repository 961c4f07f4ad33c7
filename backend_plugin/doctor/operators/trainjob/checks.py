"""Checks of Kubeflow Trainer and JobSet: their APIs, their Deployments, and Trainer's webhook."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.operators import base

_DIALECT: Final = DIALECTS["TrainJob"]
_INSTALL: Final = _DIALECT.installation
_JOBSET: Final = "jobset.x-k8s.io"
SCHEMAS: Final = (f"jobsets.{_JOBSET}",)
"""The CustomResourceDefinitions that the checks read, in addition to that of TrainJob."""
_FIELDS: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    # Trainer 2.2 has replaced podTemplateOverrides, which Kueue wrote, with this field.
    "TrainJob": [("runtimePatches",)],
    "JobSet": [("failurePolicy", "rules"), ("failurePolicy", "restartStrategy")],
}
"""The newest fields of each kind that the connector or Kueue writes."""
PROGRAM: Final = base.Program("kubeflow-trainer-controller-manager", "trainer-controller-manager")
_PROGRAMS: Final = {
    "Kubeflow Trainer": PROGRAM,
    "JobSet": base.Program("jobset-controller-manager", "jobset"),
}

CHECKS: Final = CheckList()


@CHECKS.add(Subject.JOB_KINDS, Subject.GROUPS)
def _check_trainer_crd_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster serves the kinds TrainJob, TrainingRuntime and JobSet."""
    kinds = {get_text(each, "kind") for each in facts.get_objects(Subject.JOB_KINDS)}
    for resource in filter(None, (_DIALECT.resource, _DIALECT.prerequisite)):
        if resource.kind not in kinds:
            yield Violation(f"the cluster has no {resource.kind}s of {resource.api_version}", _INSTALL)
    if _JOBSET not in facts.list_api_groups():
        yield Violation(f"the cluster has no JobSets of {_JOBSET}, which Kubeflow Trainer creates", _INSTALL)


@CHECKS.add(Subject.JOB_SCHEMA)
def _check_trainer_crd_outdated(facts: Facts) -> Iterator[Violation]:
    """Check that the kinds TrainJob and JobSet have the fields that the connector or Kueue writes."""
    for kind, version in base.iter_schema_versions(facts):
        missing = base.list_missing_fields(version, _FIELDS.get(kind, ()))
        if missing and version.get("served") is not False:
            yield Violation(f"the kind {kind} has no spec.{missing[0]}: it is too old", _INSTALL)


@CHECKS.add(Subject.DEPLOYMENTS, Subject.JOBS)
def _check_trainer_missing(facts: Facts) -> Iterator[Violation]:
    """Check that Deployments run Kubeflow Trainer and JobSet, or a TrainJob has a `jobsStatus`."""
    jobs = [each for each in facts.get_objects(Subject.JOBS) if get_text(each, "kind") == _DIALECT.name]
    if any(get_mappings(each, "status", "jobsStatus") for each in jobs):
        return
    for name, program in _PROGRAMS.items():
        if not program.list_deployments(facts):
            yield Violation(
                f"no Deployment runs {name}, and no TrainJob has a status of its JobSet", _INSTALL
            )


@CHECKS.add(Subject.DEPLOYMENTS)
def _check_trainer_down(facts: Facts) -> Iterator[Violation]:
    """Check that Kubeflow Trainer and JobSet each have a ready pod."""
    for name, program in _PROGRAMS.items():
        found = program.list_deployments(facts)
        if found and not any(map(deployments.is_ready, found)):
            yield base.report_no_ready_pod(name, found[0])


@CHECKS.add(Subject.INVALID_TRIAL)
def _check_trainer_webhook_unreachable(facts: Facts) -> Iterator[Violation]:
    """Check that the webhooks for new TrainJobs and pods respond to dry runs."""
    yield from base.report_unreachable_webhook(facts, "-n kubeflow-system")


@CHECKS.add(Subject.INVALID_TRIAL, level=Severity.WARNING)
def _check_trainer_webhook_missing(facts: Facts) -> Iterator[Violation]:
    """Check that Trainer's webhook rejects an invalid job."""
    if base.accepts_invalid_job(facts, _check_trainer_missing):
        yield Violation(
            "a TrainJob without its TrainingRuntime is not refused: Trainer's webhook is not active", _INSTALL
        )
