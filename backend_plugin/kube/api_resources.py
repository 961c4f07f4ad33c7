"""The resources of the Kubernetes API, and the watched kinds with their selectors and their decoding."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from msgspec import structs

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import JobResource
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.names import IDENTITY, NAME
from backend_plugin.core.object_readers import read_event, read_pod
from backend_plugin.core.observed import Event, Job, Pod, PodGroup, read_pod_group
from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.core.scheduling import registry
from backend_plugin.core.scheduling.adapter import SchedulerResource
from backend_plugin.core.values import Manifest
from backend_plugin.kube import json_decoder
from backend_plugin.kube.pod_decoder import PodDecoder
from backend_plugin.shell.cluster import Record

# Matches the names of our jobs (`core.names`) and of their pods. Events and pod groups do not have a
# label of this backend, and they may arrive before the job.
_OURS: Final = re.compile(f"{NAME}(?:{table.POD_SUFFIX})?")
_NAME: Final = re.compile(r"[a-z0-9][-.a-z0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A resource of the Kubernetes API."""

    group: str
    """The API group; empty for core/v1."""
    version: str
    """The API version; empty for the version that the cluster prefers."""
    plural: str

    def build_path(self, namespace: str, name: str = "", *, version: str = "") -> str:
        """Return the URL path of the object `name`, or of all objects if `name` is empty.

        An empty `namespace` stands for all namespaces, and an empty `version` for that of this resource.
        """
        root = f"/apis/{self.group}" if self.group else "/api"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}/{version or self.version}{scope}/{self.plural}{f'/{name}' if name else ''}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def build_api_resource(resource: JobResource | SchedulerResource) -> ApiResource:
    """Convert the resource of a kind of job, or of a scheduler, to an `ApiResource`."""
    return ApiResource(group=resource.group, version=resource.version, plural=resource.plural)


def get_resource(manifest: Manifest) -> ApiResource:
    """Return the resource of an object; raise `RequestRejected` if its kind or API version is malformed.

    The plural is the kind in lower case with an `s`, as for all kinds that the backend creates.
    """
    group, _, version = get_text(manifest, "apiVersion").rpartition("/")
    plural = get_text(manifest, "kind").lower() + "s"
    if not is_path_safe(*filter(None, [group]), version, plural):  # They become parts of a URL path.
        raise RequestRejected(
            HTTPStatus.BAD_REQUEST, "BadRequest", f"{plural}.{group}/{version} is not a kind"
        )
    return ApiResource(group=group, version=version, plural=plural)


def is_path_safe(*parts: str) -> bool:
    """True if all arguments are safe in a URL path. Other text could address a different path."""
    return all(map(_NAME.fullmatch, parts))


JOBS: Final[Mapping[str, ApiResource]] = {
    name: build_api_resource(each.resource) for name, each in table.DIALECTS.items()
}
"""The API resource of each kind of job, by the name of the kind, such as ``PyTorchJob``."""
PODS: Final = ApiResource(group="", version="v1", plural="pods")
POD_TEMPLATES: Final = ApiResource(group="", version="v1", plural="podtemplates")
EVENTS: Final = ApiResource(group="", version="v1", plural="events")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind:
    """A kind of object that is listed and watched. `query` may select only some of the objects."""

    record: type[Record]
    resource: ApiResource
    wire: object
    """The type that the JSON parser fills. It contains the fields that `read` uses."""
    read: Callable[[Any], Record | None]
    """Returns the record of an object; None if the object does not belong to this backend."""
    protobuf: PodDecoder | None = None
    """The protobuf parser, or None if the kind is only requested in JSON."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The selectors by which the API server filters the objects."""
    optional: bool = False
    """True if a cluster may not serve the resource."""

    about: str = ""
    """For events only: the kind of the involved object."""

    def __str__(self) -> str:
        return f"{self.resource} about a {self.about}" if self.about else str(self.resource)


def _read_own_event(manifest: Manifest) -> Event | None:
    name = get_text(manifest, "involvedObject", "name")
    return read_event(manifest) if _OURS.fullmatch(name) or registry.can_be_gang_object(name) else None


def _read_own_group(manifest: Manifest) -> PodGroup | None:
    """Return the record of a PodGroup or a Workload; None for a PodGroup unrelated to this backend's jobs.

    If an owner of the group is a job of this backend (by its name), the record gets the name of this job,
    because Kueue and KAI give their groups other names. Otherwise, the group is foreign: the record has
    `foreign` set. All foreign Workloads have a record, because they may be ahead of a job in its queue.
    A foreign PodGroup only has a record if its name could be that of a job of this backend.
    """
    for each in get_mappings(manifest, "metadata", "ownerReferences"):
        owner = get_text(each, "name")
        if get_text(each, "kind") in table.DIALECTS and _OURS.fullmatch(owner):
            group = read_pod_group(manifest)
            return structs.replace(group, name=owner, object_name=group.name)
    return _select_foreign_group(read_pod_group(manifest))


def _select_foreign_group(group: PodGroup) -> PodGroup | None:
    # Kueue's Workloads never have the name of the job.
    if group.kind == "PodGroup" and _OURS.fullmatch(group.name):
        return structs.replace(group, foreign=True)
    if group.kind != "Workload":
        return None
    queue = group.queue if registry.has_queue_position(group) else ""
    return structs.replace(group, foreign=True, queue=queue, conditions=(), checks=())


def list_group_kinds() -> tuple[WatchedKind, ...]:
    """Return the watched kinds of pod groups, one for each scheduler with pod groups."""
    return tuple(
        WatchedKind(
            record=PodGroup,
            resource=build_api_resource(each.groups),
            wire=json_decoder.GroupWire,
            read=_read_own_group,
            optional=True,
        )
        for each in registry.list_schedulers().values()
        if each.groups is not None
    )


LABELLED: Final = {"labelSelector": IDENTITY}
KINDS: Final = (
    *(
        WatchedKind(
            record=Job,
            resource=JOBS[name],
            wire=each.fields,
            read=each.read,
            query=LABELLED,
            optional=each is not table.DEFAULT,
        )
        for name, each in table.DIALECTS.items()
    ),
    # An API server without protobuf returns whole pods in JSON.
    WatchedKind(
        record=Pod, resource=PODS, wire=dict[str, Any], read=read_pod, protobuf=PodDecoder(), query=LABELLED
    ),
    # The API server filters events by the involved kind; `_read_own_event` filters them by the involved name.
    *(
        WatchedKind(
            record=Event,
            resource=EVENTS,
            wire=json_decoder.EventWire,
            read=_read_own_event,
            query={"fieldSelector": f"involvedObject.kind={about}"},
            about=about,
        )
        for about in (*table.EVENT_KINDS, "Pod", "PodGroup")
    ),
    *list_group_kinds(),
)
"""All watched kinds. Jobs come first, because the records of the other kinds refer to them."""
