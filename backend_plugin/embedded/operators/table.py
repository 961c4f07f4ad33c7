"""The table of all emulated operators, and the admission of new jobs and their related objects.

No other module imports the operators. To add an operator, add a folder next to this module and a row here.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from backend_plugin.core.dialects.table import find_pod_dialect
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.reading import get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import Key, get_key
from backend_plugin.embedded.operators import pytorchjob, trainjob
from backend_plugin.embedded.operators.base import OperatorEmulation

_ROWS: Final = (pytorchjob.OPERATOR, trainjob.OPERATOR)

OPERATORS: Final[Mapping[str, OperatorEmulation]] = {each.dialect.name: each for each in _ROWS}
"""The operators by the kind of their jobs."""
_COMPANIONS: Final[Mapping[str, Callable[[Manifest], Manifest]]] = {
    "PodGroup": lambda manifest: manifest,
    **{
        each.dialect.prerequisite.kind: each.admit_prerequisite
        for each in _ROWS
        if each.dialect.prerequisite is not None and each.admit_prerequisite is not None
    },
}
"""The functions that admit companion objects, by kind. The server creates these objects with a job."""
Get: TypeAlias = Callable[[Key], Manifest | None]
"""A function that returns the stored object with a key, or None."""


def find_pod_operator(pod: Manifest) -> OperatorEmulation:
    """Return the operator that the labels of a pod identify; the first operator if none matches."""
    labels = get_text_map(pod, "metadata", "labels")
    return OPERATORS.get(find_pod_dialect(labels).name, _ROWS[0])


def find_prerequisite(job: Manifest, get: Get) -> Manifest | None:
    """Return the object that a job requires, such as a TrainingRuntime; None if none is required or found."""
    find = OPERATORS[get_key(job).kind].find_prerequisite
    return None if find is None else get(find(job))


def admit_object(manifest: Manifest, get: Get) -> Manifest:
    """Return a new job or companion object (such as a PodGroup) in the form in which it is stored.

    `get` reads the store.

    Raises:
        RequestRejected: If the object is not supported, if no operator runs its kind, or if a prerequisite
            is missing.
    """
    kind = get_text(manifest, "kind")
    if kind in _COMPANIONS:
        return _COMPANIONS[kind](manifest)
    if kind not in OPERATORS:
        raise RequestRejected(400, "BadRequest", f"no operator for Kind={kind}")
    return OPERATORS[kind].admit(manifest, find_prerequisite(manifest, get))
