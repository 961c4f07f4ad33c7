"""Delivers the jobs, pods, events and PodGroups of the embedded cluster, and their changes, to a `Sink`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.names import IDENTITY
from backend_plugin.core.object_readers import read_event, read_pod
from backend_plugin.core.observed import Event, Job, Pod, PodGroup, read_pod_group
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_key, get_label, get_uid
from backend_plugin.embedded.store import ObjectChange, Store
from backend_plugin.shell.cluster import ObjectName, Record, Sink


class _RecordKind(NamedTuple):
    record: type[Record]
    read: Callable[[Manifest], Record]


_RECORD_KINDS: Final = {
    **{name: _RecordKind(Job, each.read) for name, each in DIALECTS.items()},
    "Pod": _RecordKind(Pod, read_pod),
    "Event": _RecordKind(Event, read_event),
    "PodGroup": _RecordKind(PodGroup, read_pod_group),
}


def deliver_all(store: Store, sink: Sink) -> None:
    """Deliver all jobs, pods, events and PodGroups with the label `IDENTITY` to `sink`."""
    found: dict[type[Record], list[tuple[str, Record]]] = {}
    for kind, record_kind in _RECORD_KINDS.items():
        ours = (each for each in store.list_objects(kind) if _is_ours(each))
        listed = found.setdefault(record_kind.record, [])
        listed += [(get_key(each).namespace, record_kind.read(each)) for each in ours]
    for record, records in found.items():
        sink.replace_records(record, records)


def deliver_change(change: ObjectChange, sink: Sink) -> None:
    """Deliver a change of an object with the label `IDENTITY` to `sink`."""
    record_kind = _RECORD_KINDS.get(change.key.kind)
    if record_kind is None or not _is_ours(change.manifest):
        return
    namespace, name = change.key.namespace, change.key.name
    if change.new is not None:
        sink.put_record(namespace, record_kind.read(change.new))
    else:
        dialect = change.key.kind if change.key.kind in DIALECTS else ""
        sink.drop_record(
            record_kind.record,
            ObjectName(namespace=namespace, name=name, uid=get_uid(change.manifest), dialect=dialect),
        )


def _is_ours(manifest: Manifest) -> bool:
    return bool(get_label(manifest, IDENTITY))
