"""The settings for the Flyte phase of a job: timeouts, causes of exit codes, and log links.

In the settings file, durations have Go's form (``3m``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

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


class LogTemplate(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The template of a log link, with the fields that such a template has in Flyte's settings."""

    name: str = ""
    display_name: str = ""
    template_uris: tuple[str, ...] = ()
    dynamic_template_uris: tuple[str, ...] = ()
    message_format: str = "UNKNOWN"
    """``UNKNOWN``, ``CSV`` or ``JSON``."""
    show_while_pending: bool = False
    hide_once_finished: bool = False
    scheme: Any = msgspec.UNSET
    """A key that Flyte ignores, but that existing files contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinkSettings:
    """The keys of ``plugins.logs`` that Flyte's own plugins use, with ``_`` instead of ``-``."""

    kubernetes_enabled: bool = False
    kubernetes_url: str = ""
    kubernetes_template_uri: str = ""
    cloudwatch_enabled: bool = False
    cloudwatch_region: str = ""
    cloudwatch_log_group: str = ""
    cloudwatch_template_uri: str = ""
    stackdriver_enabled: bool = False
    gcp_project: str = ""
    stackdriver_logresourcename: str = ""
    stackdriver_template_uri: str = ""
    templates: tuple[LogTemplate, ...] = ()
    dynamic_log_links: Mapping[str, LogTemplate] = field(default_factory=dict)
    """Links for tasks whose ``config`` names them under ``link_type``."""
