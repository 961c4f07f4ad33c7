"""Defaults of the platform settings for an embedded cluster."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from backend_plugin.core.dialects import table
from backend_plugin.core.settings import Settings
from backend_plugin.core.settings.logs import LogLinkSettings, LogTemplate

# These jobs have no owner that deletes them, and their logs use the disk of this machine.
_KEPT: Final = timedelta(days=1)


def with_embedded_defaults(settings: Settings, state: Path) -> Settings:
    """Return the settings with log links to local files, and with a TTL for finished jobs."""
    ours = settings.kfpytorch
    if not ours.ttl_after_finished:
        ours = replace(ours, ttl_after_finished=_KEPT)
    logs = settings.logs
    if logs == LogLinkSettings():
        folder = f"{(state / 'pods').absolute().as_uri()}/{{{{ .podUID }}}}/logs/{table.DEFAULT.container}"
        logs = replace(logs, templates=(LogTemplate(name="Logs of", template_uris=(folder,)),))
    return replace(settings, logs=logs, kfpytorch=ours)
