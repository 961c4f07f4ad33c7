"""Completes and checks new and changed objects of an embedded cluster.

A prerequisite is an object that a job requires, such as its TrainingRuntime. A job without it is rejected.
"""

from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission.api_errors import build_bad_request
from backend_plugin.embedded.objects import PREREQUISITES, get_key, with_metadata
from backend_plugin.embedded.operators.table import OPERATORS
from backend_plugin.embedded.store import Store

_COMPANIONS: Final = ("PodGroup", *PREREQUISITES)
"""The kinds of companion objects, which the server creates with a job."""


@dataclass(frozen=True, slots=True)
class ObjectAdmission:
    """Completes and checks objects before they are stored."""

    store: Store

    def admit(self, manifest: Manifest) -> Manifest:
        """Return a new job or companion object in its stored form, for example with defaults.

        Raises:
            RequestRejected: If the object is invalid, if no operator runs its kind, or if a prerequisite is
                missing.
        """
        kind = get_text(manifest, "kind")
        if kind in _COMPANIONS:
            return _admit_companion(manifest)
        if kind not in OPERATORS:
            raise build_bad_request(f"no operator for Kind={kind}")
        # An object without a namespace belongs to `default`.
        namespace = get_text(manifest, "metadata", "namespace") or "default"
        job = OPERATORS[kind].admit(with_metadata(manifest, namespace=namespace))
        self._check_prerequisite(job)
        return job

    def admit_update(self, old: Manifest, new: Manifest) -> Manifest:
        """Return the changed job `new` in its stored form, for example with defaults.

        Raises:
            RequestRejected: If the change is invalid, or if the prerequisite of the job is missing.
        """
        job = OPERATORS[get_key(old).kind].admit_update(old, new)
        self._check_prerequisite(job)
        return job

    def _check_prerequisite(self, job: Manifest) -> None:
        needed = OPERATORS[get_key(job).kind].prerequisite
        if needed is not None:
            needed.require(job, self.store.get(needed.find(job)))


def _admit_companion(manifest: Manifest) -> Manifest:
    """Return a new companion object with the defaults of its kind. A PodGroup is not changed."""
    for each in OPERATORS.values():
        kind = each.dialect.prerequisite
        if each.prerequisite is not None and kind is not None and kind.kind == manifest.get("kind"):
            return each.prerequisite.admit(manifest)
    return manifest
