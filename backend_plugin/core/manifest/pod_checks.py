"""What an API server would refuse of a finished pod, said before the operator tries in vain.

A PyTorchJob whose pods are refused shows nothing but events. Lives here: what can go wrong although every
part of the pod was good.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backend_plugin.core.errors import Problem
from backend_plugin.core.manifest import pod_resources
from backend_plugin.core.manifest.pod_containers import KINDS, TRAINER
from backend_plugin.core.manifest.pod_source import Draft
from backend_plugin.core.settings import Settings


def problems(spec: Mapping[str, Any], draft: Draft, settings: Settings) -> Iterator[Problem]:
    """Of a pod's spec whose containers have their final names and resources."""
    for kind in KINDS:
        for index, container in enumerate(spec.get(kind, ())):
            path = draft.path_of(kind, index)
            if any(pod_resources.is_device(name) for name in pod_resources.names_of(container)):
                yield from pod_resources.problems(pod_resources.of(container, settings), path, settings)
            if not container.get("image"):
                remedy = "name the image to run"
                yield Problem(field=f"{path}.image", value="''", message="says nothing", remedy=remedy)
    names = [each["name"] for kind in KINDS for each in spec.get(kind, ())]
    volumes = [each.get("name", "") for each in spec.get("volumes", ())]
    yield from _repeated(names, f"{draft.path}.containers", "is the name of two containers")
    yield from _repeated(volumes, f"{draft.path}.volumes", "is the name of two volumes")


def _repeated(names: Sequence[str], path: str, message: str) -> Iterator[Problem]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        taken = f"; {TRAINER} is what the training container is called" if name == TRAINER else ""
        yield Problem(field=path, value=repr(name), message=message, remedy=f"rename one of them{taken}")
