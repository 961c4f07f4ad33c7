"""What is followed: one row each.

Lives here: where a kind is found, what of it is ours, and how it is read. Does not: following.
"""

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

# A job of ours, by its name alone (`core.manifest.names`), or a pod of it. Events and groups have no label of
# ours, and may be told of before the job itself.
_OURS: Final = re.compile(r".+-\d+-[0-9a-f]{12}(?:-(?:master|worker)-\d+)?")
OPERATED: Final = "PyTorchJob"
_NAME: Final = re.compile(r"[a-z0-9][-.a-z0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind as the API server's paths have it."""

    group: str
    """Empty for core/v1."""
    version: str
    """Empty: the one that the cluster prefers."""
    plural: str

    def path(self, namespace: str, name: str = "", *, version: str = "") -> str:
        """Of an object, or of all of them; of all namespaces where none is given."""
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
    """Whether there may be such objects; others would be paths of their own, and references are made up."""
    return all(map(_NAME.fullmatch, said))


JOBS: Final = Resource(group="kubeflow.org", version="v1", plural="pytorchjobs")
PODS: Final = Resource(group="", version="v1", plural="pods")
POD_TEMPLATES: Final = Resource(group="", version="v1", plural="podtemplates")
EVENTS: Final = Resource(group="", version="v1", plural="events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource that is listed and watched, or a part of it."""

    record: type[Record]
    resource: Resource
    wire: object
    """Which of its fields are parsed, in JSON."""
    read: Callable[[Any], Record | None]
    """None: it is not ours."""
    protobuf: Parser | None = None
    """None: it comes in JSON only."""
    query: Mapping[str, str] = field(default_factory=dict)
    """What the API server leaves out."""
    optional: bool = False
    """A cluster may well be without it."""

    about: str = ""
    """Of events: the kind that they are about."""

    def __str__(self) -> str:
        return f"{self.resource} about a {self.about}" if self.about else str(self.resource)


def _our_event(manifest: Manifest) -> Event | None:
    about = section(manifest, "involvedObject")
    name = text(about, "name")
    return read_event(manifest) if _OURS.fullmatch(name) or table.may_be_of_gang(name) else None


def _our_group(manifest: Manifest) -> PodGroup | None:
    """Under the name of its job: Kueue and KAI have names of their own. Or one that has taken that name."""
    for owner in wire.owners(manifest, OPERATED):
        if _OURS.fullmatch(owner):
            named = {**manifest, "metadata": {**wire.metadata(manifest), "name": owner}}
            return read_pod_group(named)
    # Those of a queue are called otherwise.
    if text(manifest, "kind") == "PodGroup" and _OURS.fullmatch(text(wire.metadata(manifest), "name")):
        return structs.replace(read_pod_group(manifest), foreign=True)
    return _others(read_pod_group(manifest))


def _others(group: PodGroup) -> PodGroup | None:
    """Somebody else's, who may be before ours in a queue; of that only, where it is."""
    if group.kind != "Workload":
        return None
    queue = group.queue if table.is_queued(group) else ""
    return structs.replace(group, foreign=True, queue=queue, conditions=(), checks=())


LABELLED: Final = {"labelSelector": IDENTITY}
KINDS: Final = (
    Kind(record=Job, resource=JOBS, wire=wire.JobWire, read=read_job, query=LABELLED),
    # Whole, where an API server has no protobuf.
    Kind(
        record=Pod,
        resource=PODS,
        wire=dict[str, Any],
        read=read_pod,
        protobuf=PodParser(),
        query=LABELLED,
    ),
    # Of all events the API server sends those about such kinds; ours are told by the name.
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
            # The group's newest version has queues only.
            Resource(group="scheduling.run.ai", version="v2alpha2", plural="podgroups"),
            Resource(group="kueue.x-k8s.io", version="", plural="workloads"),
        )
    ),
)
"""Jobs come first: what is said of them is of no use before."""
