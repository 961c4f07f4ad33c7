"""Kubeflow Trainer, which runs TrainJobs with JobSet."""

from typing import Final

from backend_plugin.doctor.operators.base import OperatorSupport
from backend_plugin.doctor.operators.trainjob import checks, jobs

OPERATOR: Final = OperatorSupport(
    checks=checks.CHECKS,
    program=checks.PROGRAM,
    schemas=checks.SCHEMAS,
    build_role_pods=jobs.build_role_pods,
    list_secrets=jobs.list_secrets,
    build_invalid_job=jobs.build_invalid_job,
    build_trial=jobs.build_trial,
)
