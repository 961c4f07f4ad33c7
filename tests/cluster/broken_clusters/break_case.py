"""One row of the table of breaks: how to break the cluster, and the expected findings and remedies."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.api import Manifest
from rig.control_plane import ControlPlane

from backend_plugin.doctor.fact_collector import DoctorRequest
from broken_clusters import cluster_changes, doctor_runs


@dataclass(frozen=True, kw_only=True)
class BreakCase:
    """The place to break: a cluster, a namespace in it and a scratch folder."""

    plane: ControlPlane
    namespace: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Break:
    """Problems of one cluster, and the findings that the doctor reports for them."""

    finds: Mapping[str, str]
    """A part of the expected remedy, by the id of the check."""
    there: Callable[[str], Sequence[Manifest]] = lambda _: ()
    """Return the objects to create in a namespace, with their status if they have one."""
    platform: Mapping[str, Any] = field(default_factory=dict)
    """Flyte's plugin settings."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `build_request`."""
    around: Callable[[BreakCase], contextlib.AbstractContextManager[Mapping[str, Any] | None]] = lambda _: (
        contextlib.nullcontext()
    )
    """A context manager for further changes.

    It can yield more arguments for `build_request`, and a `kubeconfig` that replaces the default.
    """

    def __str__(self) -> str:
        return ",".join(self.finds)

    @contextlib.contextmanager
    def broken(self, on: BreakCase) -> Iterator[tuple[Path, DoctorRequest]]:
        """Break the cluster. Yield a kubeconfig for it and the doctor's input."""
        with contextlib.ExitStack() as undo:
            for manifest in self.there(on.namespace):
                undo.enter_context(cluster_changes.with_object(on.plane, manifest))
            fields = {**self.request, **(undo.enter_context(self.around(on)) or {})}
            kubeconfig = fields.pop("kubeconfig", None) or on.plane.kubeconfig()
            yield kubeconfig, doctor_runs.build_request(on.namespace, platform=self.platform, **fields)
