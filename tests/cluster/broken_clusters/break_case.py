"""One row of the table of breaks: how to break the cluster, the expected finding and a part of its remedy."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rig.api import Manifest
from rig.control_plane import ControlPlane

from backend_plugin.doctor.fact_collector import DoctorRequest
from broken_clusters import cluster_changes, doctor_runs
from broken_clusters.manifests import pod_template

_TEMPLATE: Final = {"default-pod-template-name": "platform"}


@dataclass(frozen=True, kw_only=True)
class BreakCase:
    """The place to break: a cluster, a namespace in it and a scratch folder."""

    plane: ControlPlane
    namespace: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Break:
    """One problem, and the finding that the doctor reports for it."""

    finds: str
    """The id of the check."""
    remedy: str
    """A part of the expected remedy."""
    how: str = ""
    """A suffix that distinguishes this row from others with the same check."""
    there: Callable[[str], Sequence[Manifest]] = lambda _: ()
    """Return the objects to create in a namespace, with their status if they have one."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """The pod spec in the platform's PodTemplate."""
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
        return f"{self.finds}-{self.how}" if self.how else self.finds

    @contextlib.contextmanager
    def broken(self, on: BreakCase) -> Iterator[tuple[Path, DoctorRequest]]:
        """Break the cluster. Yield a kubeconfig for it and the doctor's input."""
        templates = [pod_template(on.namespace, self.pod)] if self.pod else []
        platform = {**self.platform, **(_TEMPLATE if self.pod else {})}
        with contextlib.ExitStack() as undo:
            for manifest in [*self.there(on.namespace), *templates]:
                undo.enter_context(cluster_changes.with_object(on.plane, manifest))
            fields = {**self.request, **(undo.enter_context(self.around(on)) or {})}
            kubeconfig = fields.pop("kubeconfig", None) or on.plane.kubeconfig()
            namespace = fields.pop("namespace", on.namespace)
            yield kubeconfig, doctor_runs.build_request(namespace, platform=platform, **fields)
