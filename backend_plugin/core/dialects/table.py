"""The table of all dialects. To add one, add a folder next to this module and a row to `_ROWS`."""

import re
from collections.abc import Container, Mapping
from typing import Final

from backend_plugin.core.dialects import pytorchjob, trainjob
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.observed import Job, Observed
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest

_ROWS: Final = (pytorchjob.DIALECT, trainjob.DIALECT)

DIALECTS: Final[Mapping[str, Dialect]] = {each.name: each for each in _ROWS}
"""The dialects by name; the first one is the default."""
DEFAULT: Final = _ROWS[0]
END_EVENTS: Final[Mapping[str, str]] = {
    reason: kind for each in _ROWS for reason, kind in each.end_events.items()
}
"""The type of the final condition that an operator's event reports, by the reason of the event."""
OPERATOR_CONTAINERS: Final = frozenset(name for each in _ROWS for name in each.operator_containers)
"""The names of the init containers that the operators of all dialects add to pods."""
INITIALIZERS: Final = frozenset(name for each in _ROWS for name in each.initializers.values())
"""The roles of the pods that load data before the replicas are created, in all dialects."""
CREATION_FAILURES: Final = frozenset(name for each in _ROWS for name in each.creation_failures)
"""The reasons of warning events about a failed creation of the objects of a job, in all dialects."""
EVENT_KINDS: Final = tuple(dict.fromkeys((*DIALECTS, *(kind for each in _ROWS for kind in each.event_kinds))))
"""The kinds of the objects whose events are watched: jobs, and objects through which a job owns its pods."""
POD_SUFFIX: Final = "|".join(each.pod_suffix for each in _ROWS)
"""A regular expression for the part of a pod's name after the name of its job, in all dialects."""
_POD: Final = re.compile(f"(?P<job>.+)(?:{POD_SUFFIX})")


def get_dialect(name: str) -> Dialect:
    """Return the dialect of a kind of job, such as TrainJob; that of PyTorchJob if the name is empty.

    Raises `KeyError` for an unknown name.
    """
    return DIALECTS[name] if name else DEFAULT


def find_dialect(manifest: Manifest) -> Dialect | None:
    """Return the dialect of a manifest, by its kind; None if the manifest is not a job."""
    dialect = DIALECTS.get(get_text(manifest, "kind"))
    group = get_text(manifest, "apiVersion").partition("/")[0]
    return dialect if dialect is not None and group in ("", dialect.resource.group) else None


def read_job(manifest: Manifest) -> Job:
    """Read a job of any supported kind; a manifest without a kind is read as a PyTorchJob."""
    return (find_dialect(manifest) or DEFAULT).read(manifest)


def find_pod_dialect(labels: Container[str]) -> Dialect:
    """Return the dialect (kind of job) of a pod's job, by the labels of the pod; for no match, PyTorchJob."""
    return next((each for each in _ROWS if each.labels.job_name in labels), DEFAULT)


def parse_job_name(pod: str) -> str:
    """Return the job name within the name of a replica's pod; empty if the name has another form."""
    match = _POD.fullmatch(pod)
    return match["job"] if match is not None else ""


def interpret(observed: Observed) -> Observed:
    """Return the observed state, with added conditions that the operator of the job does not report."""
    return observed if observed.job is None else get_dialect(observed.job.dialect).interpret(observed)
