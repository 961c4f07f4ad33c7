"""The training operator, which runs PyTorchJobs."""

from typing import Final

from backend_plugin.doctor.operators.base import OperatorSupport
from backend_plugin.doctor.operators.pytorchjob import checks, jobs

OPERATOR: Final = OperatorSupport(
    checks=checks.CHECKS,
    program=checks.PROGRAM,
    build_role_pods=jobs.build_role_pods,
    build_invalid_job=jobs.build_invalid_job,
    build_trial=jobs.build_trial,
)
