"""The watched kinds: one row each, with its resource, its filter and its reader."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import structs

from backend_plugin.core.manifest.names import IDENTITY
from backend_plugin.core.observed import (
    Event,
    Job,
    Pod,
    PodGroup,
    read_event,
    read_job,
    read_pod,
    read_pod_group,
)
from backend_plugin.core.reading import section, text
from backend_plugin.core.scheduling import table
from backend_plugin.core.values import Manifest
from backend_plugin.kube import wire
from backend_plugin.kube.parsed import Parser
from backend_plugin.kube.pod_wire import PodParser
from backend_plugin.shell.cluster import Record

# Matches the names of our jobs (`core.manifest.names`) and of their pods. Events and pod groups do not have a
# label of this backend, and they may arrive before the job.
_OURS: Final = re.compile(r".+-\d+-[0-9a-f]{12}(?:-(?:master|worker)-\d+)?")
OPERATED: Final = "PyTorchJob"
_NAME: Final = re.compile(r"[a-z0-9][-.a-z0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of the Kubernetes API."""

    group: str
    """Empty for core/v1."""
    version: str
    """Empty for the version that the cluster prefers."""
    plural: str

    def path(self, namespace: str, name: str = "", *, version: str = "") -> str:
        """Return the URL path of one object, or of all objects if `name` is empty.

        Args:
            namespace: Empty for all namespaces.
            name: The name of the object.
            version: Replaces the version of the resource.
        """
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = (
            root,
            version or self.version,
            *(("namespaces", namespace) if namespace else ()),
            self.plural,
            *((name,) if name else ()),
        )
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def are_names(*said: str) -> bool:
    """True if all arguments are safe in a URL path. Other text could address a different path."""
    return all(map(_NAME.fullmatch, said))


JOBS: Final = Resource(group="kubeflow.org", version="v1", plural="pytorchjobs")
PODS: Final = Resource(group="", version="v1", plural="pods")
POD_TEMPLATES: Final = Resource(group="", version="v1", plural="podtemplates")
EVENTS: Final = Resource(group="", version="v1", plural="events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A resource that is listed and watched, or a part of its objects."""

    record: type[Record]
    resource: Resource
    wire: object
    """The type that the JSON parser fills. It contains the fields that `read` uses."""
    read: Callable[[Any], Record | None]
    """Returns None for an object that does not belong to this backend."""
    protobuf: Parser | None = None
    """The protobuf parser, or None if the kind is only requested in JSON."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The selectors by which the API server filters the objects."""
    optional: bool = False
    """True if a cluster may not serve the resource."""

    about: str = ""
    """The kind of the involved object. Used for events only."""

    def __str__(self) -> str:
        return f"{self.resource} about a {self.about}" if self.about else str(self.resource)


def _our_event(manifest: Manifest) -> Event | None:
    about = section(manifest, "involvedObject")
    name = text(about, "name")
    return read_event(manifest) if _OURS.fullmatch(name) or table.may_be_of_gang(name) else None


def _our_group(manifest: Manifest) -> PodGroup | None:
    """Return a pod group under the name of the job that owns it, since Kueue and KAI use other names.

    A pod group without this owner is `foreign`, even if it has the name of a job.
    """
    for owner in wire.owners(manifest, OPERATED):
        if _OURS.fullmatch(owner):
            named = {**manifest, "metadata": {**wire.metadata(manifest), "name": owner}}
            return read_pod_group(named)
    # Kueue's Workloads never have the name of the job.
    if text(manifest, "kind") == "PodGroup" and _OURS.fullmatch(text(wire.metadata(manifest), "name")):
        return structs.replace(read_pod_group(manifest), foreign=True)
    return _others(read_pod_group(manifest))


def _others(group: PodGroup) -> PodGroup | None:
    """Return a foreign Workload with the fields that determine queue positions; None for other kinds."""
    if group.kind != "Workload":
        return None
    queue = group.queue if table.is_queued(group) else ""
    return structs.replace(group, foreign=True, queue=queue, conditions=(), checks=())


LABELLED: Final = {"labelSelector": IDENTITY}
KINDS: Final = (
    Kind(record=Job, resource=JOBS, wire=wire.JobWire, read=read_job, query=LABELLED),
    # An API server without protobuf returns whole pods in JSON.
    Kind(
        record=Pod,
        resource=PODS,
        wire=dict[str, Any],
        read=read_pod,
        protobuf=PodParser(),
        query=LABELLED,
    ),
    # The API server filters events by the involved kind; `_our_event` filters them by the involved name.
    *(
        Kind(
            record=Event,
            resource=EVENTS,
            wire=wire.EventWire,
            read=_our_event,
            query={"fieldSelector": f"involvedObject.kind={about}"},
            about=about,
        )
        for about in (OPERATED, "Pod", "PodGroup")
    ),
    *(
        Kind(record=PodGroup, resource=resource, wire=wire.GroupWire, read=_our_group, optional=True)
        for resource in (
            Resource(group="scheduling.x-k8s.io", version="", plural="podgroups"),
            Resource(group="scheduling.volcano.sh", version="", plural="podgroups"),
            # The newest version of this API group contains queues only.
            Resource(group="scheduling.run.ai", version="v2alpha2", plural="podgroups"),
            Resource(group="kueue.x-k8s.io", version="", plural="workloads"),
        )
    ),
)
"""Jobs come first, because the records of the other kinds refer to them."""
