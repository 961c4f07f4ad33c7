"""Checks of a finished pod for errors that the API server or the operator would report only in events."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from backend_plugin.core import pod_rules
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import ReplicaGroup
from backend_plugin.core.manifest import pod_resources
from backend_plugin.core.manifest.pod_containers import KINDS
from backend_plugin.core.manifest.pod_draft import PodDraft
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.settings import Settings

# Some releases replace a negative value by 1.
_UNCERTAIN: Final = ("spec.terminationGracePeriodSeconds",)
# The limit of Linux for one argument, with its terminator: 32 pages of 4 KiB.
_LONGEST_TEXT: Final = 32 * 4096 - 1
_BEGINNING: Final = 40


def check_pod(
    spec: Mapping[str, Any], draft: PodDraft, settings: Settings, dialect: Dialect
) -> Iterator[Problem]:
    """Yield the problems of a pod's spec whose containers have their final names and resources."""
    for kind in KINDS:
        for index, container in enumerate(spec.get(kind, ())):
            path = draft.get_container_path(kind, index)
            yield from _check_container(container, path, settings)
            if container["name"] == dialect.container and kind == "containers":
                yield from dialect.check_container(container, path)
    names = [each["name"] for kind in KINDS for each in spec.get(kind, ())]
    volumes = [each.get("name", "") for each in spec.get("volumes", ())]
    taken = f"rename one of them; {dialect.container} is the name of the training container"
    for name in _list_repeated(names):
        remedy = taken if name == dialect.container else "rename one of them"
        yield build_problem(f"{draft.path}.containers", name, "is the name of two containers", remedy)
    for name in _list_repeated(volumes):
        yield build_problem(f"{draft.path}.volumes", name, "is the name of two volumes", "rename one of them")


def check_api_rules(spec: Mapping[str, Any], draft: PodDraft, dialect: Dialect) -> Iterator[Problem]:
    """Yield the problems for which the API server would reject the pod, after the job has been created."""
    for error in pod_rules.check_spec(spec):
        # A webhook may add the volume to a pod, but not to the template of a Kubernetes Job.
        is_completed = ".volumeMounts[" in error.field and dialect.prerequisite is None
        # `pod_resources` checks the resources, which admission plugins may change.
        is_completed |= ".resources" in error.field
        if error.is_certain and not is_completed and error.field not in _UNCERTAIN:
            detail = error.detail or error.kind.lower()
            yield build_problem(
                f"{draft.path}.{error.field.removeprefix('spec.')}",
                error.value,
                f"would be rejected by the cluster: {detail}",
                "correct it; it may be the PodTemplate's",
            )


def check_gpu_count(
    spec: Mapping[str, Any], group: ReplicaGroup, settings: Settings, dialect: Dialect
) -> Iterator[Problem]:
    """Yield a problem if a replica with GPUs starts more processes than it has GPUs."""
    trainer = next(each for each in spec["containers"] if each["name"] == dialect.container)
    gpus = pod_resources.read_container_resources(trainer, settings).limits.get(settings.gpu_resource_name)
    if gpus and gpus.is_whole and gpus.whole < group.processes:
        yield build_problem(
            "custom.elasticConfig.nprocPerNode",
            group.processes,
            f"is more than the {gpus.text} GPUs of a node",
            f"write at most {gpus.text}, or request {group.processes} GPUs",
        )


def _check_container(container: Mapping[str, Any], path: str, settings: Settings) -> Iterator[Problem]:
    if any(pod_resources.is_device(name) for name in pod_resources.get_resource_names(container)):
        yield from pod_resources.check_devices(
            pod_resources.read_container_resources(container, settings), path, settings
        )
    if not container.get("image"):
        yield build_problem(f"{path}.image", "", "is empty", "name the image to run")
    yield from _check_text_lengths(container, path)
    for place in _list_repeated([each.get("mountPath", "") for each in container.get("volumeMounts", ())]):
        remedy = "leave one of the two out; one may be the PodTemplate's"
        yield build_problem(f"{path}.volumeMounts", place, "is the mount path of two volumes", remedy)


def _check_text_lengths(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield each argument and variable that is too long for Linux to start the program on any node."""
    if _is_short(container):
        return
    texts = [(f"{path}.{key}", each) for key in ("command", "args") for each in container.get(key, ())]
    texts += [
        (f"{path}.env", f"{each.get('name', '')}={each.get('value', '')}")
        for each in container.get("env", ())
    ]
    for field, text in texts:
        if (size := len(text.encode(errors="replace"))) > _LONGEST_TEXT:
            message = (
                f"has {size:,} bytes, and Linux accepts at most {_LONGEST_TEXT:,} in one argument or variable"
            )
            yield build_problem(
                field, text[:_BEGINNING], message, "pass it as a file, or as an input of the task"
            )


def _is_short(container: Mapping[str, Any]) -> bool:
    """True if the whole container is shorter than the limit for one text, so that no text can exceed it."""
    try:
        return len(msgspec.json.encode(container)) <= _LONGEST_TEXT
    except UnicodeEncodeError:  # A lone surrogate, which YAML allows.
        return False


def _list_repeated(values: Sequence[Any]) -> list[Any]:
    if len({*values}) == len(values):
        return []
    return sorted(value for value, times in Counter(values).items() if times > 1)
