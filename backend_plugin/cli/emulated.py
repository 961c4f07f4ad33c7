"""What a platform means by saying nothing, when its cluster is emulated on this machine."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from backend_plugin.core.job import TRAINER
from backend_plugin.core.settings import Settings
from backend_plugin.core.settings.logs import Logs, LogTemplate

# Nobody owns these jobs, and their logs are on somebody's disk.
_KEPT: Final = timedelta(days=1)


def platform(settings: Settings, state: Path) -> Settings:
    """The same settings, with log links to this machine's files, and an end to how long jobs are kept."""
    ours = settings.kfpytorch
    if not ours.ttl_after_finished:
        ours = replace(ours, ttl_after_finished=_KEPT)
    logs = settings.logs
    if logs == Logs():
        folder = f"{(state / 'pods').absolute().as_uri()}/{{{{ .podUID }}}}/logs/{TRAINER}"
        logs = replace(logs, templates=(LogTemplate(name="Logs of", template_uris=(folder,)),))
    return replace(settings, logs=logs, kfpytorch=ours)
