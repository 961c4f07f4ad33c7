"""How patient we are with a job, and what its exit codes mean here.

The keys of the settings file are these names with ``-`` for ``_``; durations there are Go's (``3m``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from kfpytorch_common.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How long each kind of trouble is borne; zero means no limit, except where it says otherwise."""

    no_status_timeout: timedelta = timedelta(minutes=5)
    """How long the operator has to notice a job; the first status of a busy one takes a minute or two."""
    queue_timeout: timedelta = timedelta(0)
    """How long a job may wait for a queue, a gang scheduler, a quota or nodes."""
    queue_timeouts: Mapping[str, timedelta] = field(default_factory=dict)
    """The same by why it waits, in place of that: a cause, or ``never`` for what will never be there."""
    pending_timeout: timedelta = timedelta(hours=1)
    """How long a replica that has a node may take to start; images of tens of gigabytes take their time."""
    active_deadline: timedelta = timedelta(0)
    """How long a job may run, from its first running container; the job's own deadline wins."""
    image_pull_backoff_grace_period: timedelta = timedelta(minutes=3)
    """How long an image may be refused before we give up; zero: at once."""
    create_container_error_grace_period: timedelta = timedelta(minutes=3)
    """The same for a container that cannot be made."""
    create_container_config_error_grace_period: timedelta = timedelta(0)
    """The same for one whose Secret or ConfigMap is missing."""
    unseen_pod_patience: timedelta = timedelta(minutes=1)
    """After this long without a word from any scheduler a pod is said to have none."""
    settling_time: timedelta = timedelta(minutes=1)
    """After a success, how long a restarted replica may take to end as well before its old error counts."""
    exit_codes: Mapping[int, Cause] = field(default_factory=dict)
    """What an exit code means here, before the table that everybody shares."""
