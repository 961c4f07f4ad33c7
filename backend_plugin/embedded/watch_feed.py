"""Delivers the watched objects of the embedded cluster, and their changes, to the consumer of the watch."""

from collections.abc import Callable, Mapping
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.names import IDENTITY
from backend_plugin.core.object_readers import read_event, read_pod
from backend_plugin.core.observed import Event, Job, Pod, PodGroup, read_pod_group
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_key, get_label, get_uid
from backend_plugin.embedded.store import ObjectChange, Store
from backend_plugin.shell.cluster import ObjectName, Record, Sink

_READERS: Final[Mapping[str, tuple[type[Record], Callable[[Manifest], Record]]]] = {
    **{name: (Job, each.read) for name, each in DIALECTS.items()},
    "Pod": (Pod, read_pod),
    "Event": (Event, read_event),
    "PodGroup": (PodGroup, read_pod_group),
}
"""The type of the record, and the function that builds it, for each kind of watched object."""


def deliver_all(store: Store, sink: Sink) -> None:
    """Replace the content of `sink` by all watched objects with the label `IDENTITY`."""
    found: dict[type[Record], list[tuple[str, Record]]] = {}
    for kind, (record, read) in _READERS.items():
        found.setdefault(record, []).extend(
            (get_key(each).namespace, read(each))
            for each in store.list_objects(kind)
            if get_label(each, IDENTITY)
        )
    for record, records in found.items():
        sink.replace_records(record, records)


def deliver_change(change: ObjectChange, sink: Sink) -> None:
    """Add, update or remove a changed object in `sink`, if it has the label `IDENTITY` of a job's objects."""
    if change.key.kind not in _READERS or not get_label(change.manifest, IDENTITY):
        return
    record, read = _READERS[change.key.kind]
    namespace, name = change.key.namespace, change.key.name
    if change.new is not None:
        sink.put_record(namespace, read(change.new))
    else:
        dialect = change.key.kind if change.key.kind in DIALECTS else ""
        uid = get_uid(change.manifest)
        sink.drop_record(record, ObjectName(namespace=namespace, name=name, uid=uid, dialect=dialect))
