"""The timeouts of a job, and the causes of its exit codes.

The keys of the settings file are the field names with ``-`` for ``_``; durations have Go's form (``3m``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from kfpytorch_common.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingSettings:
    """The time limits of a job; zero means no limit, unless a field documents another meaning."""

    no_status_timeout: timedelta = timedelta(minutes=5)
    """The time for the operator to write the first status of a job; a busy operator takes a minute or two."""
    queue_timeout: timedelta = timedelta(0)
    """The time that a job may wait for a queue, a gang scheduler, a quota or nodes."""
    queue_timeout_by_cause: Mapping[str, timedelta] = field(default_factory=dict)
    """Limits that replace `queue_timeout`, by cause; ``unsatisfiable`` is for impossible requests."""
    pending_timeout: timedelta = timedelta(hours=1)
    """The time for a replica on a node to start; pulling an image of tens of gigabytes is slow."""
    active_deadline: timedelta = timedelta(0)
    """The maximum run time of a job after its first container started; the job's own deadline wins."""
    image_pull_backoff_grace_period: timedelta = timedelta(minutes=3)
    """The time before an image pull failure counts; zero: immediately."""
    create_container_error_grace_period: timedelta = timedelta(minutes=3)
    """The time before a container creation failure counts; zero: immediately."""
    create_container_config_error_grace_period: timedelta = timedelta(0)
    """The time before a missing Secret or ConfigMap counts; zero: immediately."""
    unscheduled_pod_grace_period: timedelta = timedelta(minutes=1)
    """The time without a scheduler status after which a pod is reported to have no scheduler."""
    success_settling_period: timedelta = timedelta(minutes=1)
    """The time after a success for a restarted replica to end too; then its earlier error counts."""
    exit_codes: Mapping[int, Cause] = field(default_factory=dict)
    """The causes of exit codes on this platform, which override the default table."""
