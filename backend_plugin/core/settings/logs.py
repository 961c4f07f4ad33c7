"""The log link settings: Flyte's ``plugins.logs`` under its own names (``-`` for ``_``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTemplate:
    """The template of a log link; its keys are Flyte's in snake case."""

    name: str
    display_name: str = ""
    template_uris: tuple[str, ...] = ()
    dynamic_template_uris: tuple[str, ...] = ()
    message_format: str = "UNKNOWN"
    """``UNKNOWN``, ``CSV`` or ``JSON``."""
    show_while_pending: bool = False
    hide_once_finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinkSettings:
    """The fields of ``plugins.logs`` that Flyte's own plugins use."""

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
