"""The settings of log links: the keys of Flyte's ``plugins.logs``, as fields with ``_`` instead of ``-``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec


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
