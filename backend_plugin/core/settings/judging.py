"""The timeouts of a job, and the causes of its exit codes.

In the settings file, durations have Go's form (``3m``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from kfpytorch_common.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingSettings:
    """The time limits of a job; zero means no limit, unless a field documents another meaning."""

    no_status_timeout: timedelta = timedelta(minutes=5)
    """The maximum time until the operator writes a job's first status; a busy operator takes minutes."""
    queue_timeout: timedelta = timedelta(0)
    """The maximum time that a job waits for a queue, a gang scheduler, a quota or nodes."""
    queue_timeout_by_cause: Mapping[str, timedelta] = field(default_factory=dict)
    """Limits that replace `queue_timeout`, by cause; ``unsatisfiable`` is for impossible requests."""
    pending_timeout: timedelta = timedelta(hours=1)
    """The maximum time for a replica to start on its node; the pull of a large image is slow."""
    active_deadline: timedelta = timedelta(0)
    """The maximum run time from the start of a job's first container, unless the job has its own deadline."""
    image_pull_backoff_grace_period: timedelta = timedelta(minutes=3)
    """The maximum wait of a replica for an image that cannot be pulled; zero: the job fails immediately."""
    create_container_error_grace_period: timedelta = timedelta(minutes=3)
    """The maximum time that the creation of a container is retried; zero: the job fails immediately."""
    create_container_config_error_grace_period: timedelta = timedelta(0)
    """The maximum wait of a replica for a missing Secret or ConfigMap; zero: the job fails immediately."""
    unscheduled_pod_grace_period: timedelta = timedelta(minutes=1)
    """The time for which a pod may have no status from a scheduler; later, the job has a warning about it."""
    success_settling_period: timedelta = timedelta(minutes=1)
    """The time for a restarted replica to end after the job succeeded; later, its old error fails the job."""
    exit_codes: Mapping[int, Cause] = field(default_factory=dict)
    """The causes of exit codes on this platform, which override the default table."""
