"""Every gang scheduler that there is an adapter for, by the name that the settings have for it.

To add one, add a module to `schedulers` and a row.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from backend_plugin.core.scheduling.adapter import Adapter
from backend_plugin.core.scheduling.schedulers import coscheduling, kai, kueue, volcano, yunikorn

Table: TypeAlias = Mapping[str, Mapping[str, Adapter]]
"""By the name of the scheduler, then by the style; one that is used in one way only has the style ``""``."""

ADAPTERS: Final[Table] = {
    "coscheduling": coscheduling.STYLES,
    "kai": kai.STYLES,
    "kueue": kueue.STYLES,
    "volcano": volcano.STYLES,
    "yunikorn": yunikorn.STYLES,
}

REFUSED: Final[Mapping[str, str]] = {
    "in-tree": "cannot be told of a PyTorchJob, whose kind drops the field that names the group of a pod",
}
"""What people may ask for, and why they cannot have it."""
