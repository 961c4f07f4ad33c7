"""What one row of the table is: how a cluster is broken, what the doctor calls it, and what he says to do."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rig.api import Manifest
from rig.control_plane import ControlPlane

from backend_plugin.doctor.gathering import Wish
from broken import around_it, looking
from broken.manifests import pod_template

_TEMPLATE: Final = {"default-pod-template-name": "platform"}


@dataclass(frozen=True, kw_only=True)
class Broken:
    """Where something is to be broken."""

    plane: ControlPlane
    namespace: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Break:
    """One thing that is wrong."""

    finds: str
    """The id of the check."""
    remedy: str
    """A part of what is to be done."""
    how: str = ""
    """To tell it from others of its check."""
    also: tuple[str, ...] = ()
    """Other checks that cannot but find something, too."""
    there: Callable[[str], Sequence[Manifest]] = lambda _: ()
    """Objects, of the namespace that is given; with their status where they have one."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """What the platform's PodTemplate says."""
    platform: Mapping[str, Any] = field(default_factory=dict)
    """Flyte's settings."""
    asks: Mapping[str, Any] = field(default_factory=dict)
    """What is asked of the doctor; see `looking.wish`."""
    around: Callable[[Broken], contextlib.AbstractContextManager[Mapping[str, Any] | None]] = lambda _: (
        contextlib.nullcontext()
    )
    """What else is done, and undone; gives what else is asked, and ``kubeconfig`` in place of the usual."""

    def __str__(self) -> str:
        return f"{self.finds}-{self.how}" if self.how else self.finds

    @contextlib.contextmanager
    def broken(self, on: Broken) -> Iterator[tuple[Path, Wish]]:
        """While it is so: how the cluster is reached, and what is asked about it."""
        templates = [pod_template(on.namespace, self.pod)] if self.pod else []
        platform = {**self.platform, **(_TEMPLATE if self.pod else {})}
        with contextlib.ExitStack() as undo:
            for manifest in [*self.there(on.namespace), *templates]:
                undo.enter_context(around_it.there(on.plane, manifest))
            said = {**self.asks, **(undo.enter_context(self.around(on)) or {})}
            kubeconfig = said.pop("kubeconfig", None) or on.plane.kubeconfig()
            namespace = said.pop("namespace", on.namespace)
            yield kubeconfig, looking.wish(namespace, platform=platform, **said)
