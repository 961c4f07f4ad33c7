"""Delivery of the current objects and of every change to a sink."""

from collections.abc import Callable
from typing import Final, NamedTuple

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
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import key_of, label_of, uid_of
from backend_plugin.embedded.store import Change, Store
from backend_plugin.shell.cluster import Name, Record, Sink


class _Told(NamedTuple):
    record: type[Record]
    read: Callable[[Manifest], Record]


_TOLD: Final = {
    "PyTorchJob": _Told(Job, read_job),
    "Pod": _Told(Pod, read_pod),
    "Event": _Told(Event, read_event),
    "PodGroup": _Told(PodGroup, read_pod_group),
}


def tell_all(store: Store, sink: Sink) -> None:
    """Deliver all objects with the label `IDENTITY` to `sink`."""
    for kind, told in _TOLD.items():
        ours = [each for each in store.all(kind) if _is_ours(each)]
        sink.replace(told.record, [(key_of(each).namespace, told.read(each)) for each in ours])


def tell(change: Change, sink: Sink) -> None:
    """Deliver a change of an object with the label `IDENTITY` to `sink`."""
    told = _TOLD.get(change.key.kind)
    if told is None or not _is_ours(change.last):
        return
    namespace, name = change.key.namespace, change.key.name
    if change.new is not None:
        sink.put(namespace, told.read(change.new))
    else:
        sink.drop(told.record, Name(namespace=namespace, name=name, uid=uid_of(change.last)))


def _is_ours(manifest: Manifest) -> bool:
    return bool(label_of(manifest, IDENTITY))
