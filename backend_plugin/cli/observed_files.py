"""Reads the objects of a job for `kfpytorch explain`, from files or from one line of a batch.

`core.pipeline.judge` derives the Flyte phase from them.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml

from backend_plugin.cli import input_files
from backend_plugin.cli.command_errors import Misused, UnusableInput
from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.error_document import build_unreadable_document, decode_document
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.observed import Observed
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.shell import yaml_loader

_KINDS: Final = {
    **dict.fromkeys(DIALECTS, "job"),
    "Pod": "pods",
    "Event": "events",
    "PodGroup": "pod_groups",
    "Workload": "pod_groups",
}
"""The key in a request for each kind of object."""
_OUTPUTS: Final = "outputs.pb"
"""The name of the file that a successful task writes."""


def read_request(request: Mapping[str, Any]) -> Observed:
    """Convert one line of a batch to the state of a job; invalid values in the line are ignored."""
    files = [_read_error_file(each) for each in get_mappings(request, "error_files")]
    return read_observed({**request, "error_files": files})


def _read_error_file(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read an error file of a request, with ``path`` and one of ``error``, ``document`` and ``base64``."""
    data = value.get("base64")
    if not isinstance(data, str):
        return value
    try:
        read = decode_document(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        read = build_unreadable_document("cannot be read: it is not base64")
    return {**read, "path": value.get("path")}


def read_files(files: Iterable[str], *, job: str | None, outputs: bool | None) -> Observed:
    """Read all files, and return the state of the job of that name, or of the only job.

    `outputs` is True if ``outputs.pb`` exists, and None if that is unknown.

    Raises:
        UnusableInput: If a file is missing or invalid, or no file contains such a job.
    """
    objects: dict[str, list[Mapping[str, Any]]] = {
        kind: [] for kind in (*_KINDS.values(), "error_files", "others")
    }
    for name in files:
        if Path(name).name == _OUTPUTS:
            input_files.read_input(name)
            outputs = True
        else:
            for kind, each in _iter_objects(name):
                objects[kind].append(each)
    selected = _select_job(job, objects)
    own = {
        kind: _select_own_objects(objects[kind], selected, objects["job"])
        for kind in ("events", "pod_groups")
    }
    return read_observed({**objects, **own, "job": selected, "outputs": outputs})


def _select_job(
    name: str | None, objects_by_kind: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Mapping[str, Any] | None:
    """Return the selected job; None if the job is deleted and only an error file is left."""
    jobs = {get_text(each, "metadata", "name"): each for each in objects_by_kind["job"]}
    if name in jobs:
        return jobs[name]
    if name is None and len(objects_by_kind["job"]) == 1:
        return objects_by_kind["job"][0]
    if jobs:
        problem = "there is more than one job" if name is None else f"there is no job {name}"
        raise Misused(f"{problem}; add --job with one of: {', '.join(sorted(jobs))}")
    if objects_by_kind["error_files"]:
        return None
    raise UnusableInput(_format_missing_job(chain.from_iterable(objects_by_kind.values())))


def _format_missing_job(objects: Iterable[Mapping[str, Any]]) -> str:
    kinds = sorted({str(each.get("kind")) for each in objects})
    others = f", only {', '.join(kinds)}" if kinds else ""
    return (
        f"no file contains a {' or '.join(DIALECTS)}{others}; "
        f"run: kubectl get {DEFAULT.resource.plural} NAME -o yaml | kfpytorch explain -"
    )


def _select_own_objects(
    objects: Sequence[Manifest], job: Manifest | None, jobs: Sequence[Manifest]
) -> Sequence[Manifest]:
    """Return the objects of this job, because `judge` attributes all its input to the job."""
    if job is None:
        return objects
    names = [get_text(each, "metadata", "name") for each in jobs]

    def is_own(object_name: str) -> bool:
        """True for the name of the job or of one of its pods; ``a-b-worker-0`` is not a pod of job ``a``."""
        near = [name for name in names if f"{object_name}-".startswith(f"{name}-")]
        return max(near, key=len, default=None) == get_text(job, "metadata", "name")

    return [
        each for each in objects if not (related := _list_related_names(each)) or any(map(is_own, related))
    ]


def _list_related_names(manifest: Manifest) -> Sequence[str]:
    """Return the names of the object of an event, or of the owners of a pod group; empty if unknown."""
    regarding = get_mapping(manifest, "involvedObject") or get_mapping(manifest, "regarding")
    owners = get_mappings(manifest, "metadata", "ownerReferences")
    return [name for each in (regarding, *owners) if (name := get_text(each, "name"))]


def _iter_objects(name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each object in a file with its key in a request; a file has one object, several, or Lists."""
    data = input_files.read_input(name)
    if name.endswith(".pb"):
        yield "error_files", {**decode_document(data), "path": name}
        return
    try:
        documents = yaml_loader.load_documents(data, times=False)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UnusableInput(f"{name}: is neither YAML nor JSON: {error}") from error
    for document in documents:
        for each in _iter_items(document) if isinstance(document, Mapping) else ():
            yield _KINDS.get(str(each.get("kind")), "others"), each


def _iter_items(document: Manifest) -> Iterator[Manifest]:
    """Yield the items of a List. The API server omits the kind of the items in a PodList."""
    if not isinstance(document.get("items"), list):
        yield document
        return
    kind = get_text(document, "kind").removesuffix("List")
    for item in get_mappings(document, "items"):
        yield {"kind": kind, **item}
