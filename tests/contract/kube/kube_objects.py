"""The objects of a fake API server with their versions and the history for watches."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from backend_plugin.embedded.objects import merge_patch

Key = tuple[str, str, str, str]  # Group, plural, namespace, name.
SPEC = {"pytorchReplicaSpecs", "runPolicy", "elasticPolicy", "nprocPerNode"}


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        metadata = details.pop("metadata", {})
        about = {"metadata": metadata, "message": message, "reason": reason, "details": details, "code": code}
        self.status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", **about}


def expired(**details: Any) -> Refusal:
    return Refusal(410, "Expired", "The provided resource version is too old", **details)


@dataclass
class Entry:
    version: int
    type: str
    key: Key
    object: Any
    before: Any = None


@dataclass
class Objects:
    """The objects, with their versions since the last compaction."""

    now: dict[Key, Any] = field(default_factory=dict)
    history: list[Entry] = field(default_factory=list)
    compacted: int = 0
    rests: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)
    """The versions and the objects of later pages, by their `continue` tokens."""
    namespaces: dict[str, str] = field(default_factory=lambda: {"ns": "Active"})
    quota: str = ""  # The message of an exceeded quota. Every creation fails with it.
    admission_scheduler: str = ""  # The scheduler that a webhook sets in every pod.
    manages_jobs: bool = False  # True if Kueue's webhook suspends PyTorchJobs with a queue.
    on_create: Callable[[Key, Any], object] = lambda *_: None
    """Called with each object that a client has created, as a controller would receive it."""
    _versions: Any = field(default_factory=lambda: itertools.count(101))
    version: int = 100

    # ---- changes by controllers

    def apply(self, key: Key, manifest: Any) -> Any:
        old = self.now.get(key)
        self.version = next(self._versions)
        meta = {
            "uid": f"uid-{self.version}",
            "creationTimestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **({} if old is None else old["metadata"]),
            **manifest["metadata"],
            "resourceVersion": str(self.version),
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}],
        }
        new = {**manifest, "metadata": meta}
        self.now[key] = new
        self.history.append(Entry(self.version, "ADDED" if old is None else "MODIFIED", key, new, old))
        return new

    def remove(self, key: Key) -> Any:
        old = self.now.pop(key)
        self.version = next(self._versions)
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self.history.append(Entry(self.version, "DELETED", key, gone, old))
        return gone

    def compact(self) -> None:
        """Expire all versions: watches and `continue` tokens from before fail."""
        self.version = self.compacted = next(self._versions)
        self.history = []

    # ---- requests

    def create(self, key: Key, manifest: Any, query: Any) -> Any:
        group, plural, namespace, name = key
        if self.namespaces.get(namespace) is None:
            raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found', kind="namespaces")
        if self.namespaces[namespace] == "Terminating":
            reason = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise Refusal(403, "Forbidden", reason, causes=[{"reason": "NamespaceTerminating"}])
        if self.quota:
            raise Refusal(403, "Forbidden", f'{plural}.{group} "{name}" is forbidden: {self.quota}')
        unknown = set(manifest.get("spec", {})) - SPEC
        if group == "kubeflow.org" and unknown and query.get("fieldValidation") == "Strict":
            reason = ", ".join(f'unknown field "spec.{each}"' for each in sorted(unknown))
            raise Refusal(400, "BadRequest", f"strict decoding error: {reason}")
        about = manifest.get("involvedObject", {})
        if plural == "events" and about.get("namespace") != namespace:
            reason = "involvedObject.namespace: Invalid value: does not match event.namespace"
            raise Refusal(422, "Invalid", f'Event "{name}" is invalid: {reason}')
        if key in self.now:
            raise Refusal(409, "AlreadyExists", f'{plural}.{group} "{name}" already exists')
        admitted = self.admitted(plural, manifest)
        if query.get("dryRun") == "All":
            return admitted
        made = self.apply(key, admitted)
        self.on_create(key, made)
        return made

    def admitted(self, plural: str, manifest: Any) -> Any:
        """Return the object with the changes of the API server and its webhooks."""
        spec = manifest.get("spec", {})
        if plural == "pods":
            named = self.admission_scheduler or spec.get("schedulerName") or "default-scheduler"
            return {**manifest, "spec": {**spec, "schedulerName": named}}
        queue = manifest["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")
        if plural == "pytorchjobs" and queue and self.manages_jobs:
            return {**manifest, "spec": {**spec, "runPolicy": {**spec.get("runPolicy", {}), "suspend": True}}}
        return manifest

    def get(self, key: Key) -> Any:
        if key not in self.now:
            reason = f'{key[1]}{"." if key[0] else ""}{key[0]} "{key[3]}" not found'
            raise Refusal(404, "NotFound", reason, name=key[3], group=key[0], kind=key[1])
        return self.now[key]

    def patch(self, key: Key, patch: Any) -> Any:
        old = self.get(key)
        new: Any = merge_patch(old, patch)
        if new["metadata"]["uid"] != old["metadata"]["uid"]:
            causes = [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]
            raise Refusal(422, "Invalid", "metadata.uid: Invalid value: field is immutable", causes=causes)
        if new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            reason = "the object has been modified; please apply your changes to the latest version"
            raise Refusal(409, "Conflict", f"Operation cannot be fulfilled on {key[1]}: {reason}")
        return self.apply(key, new)

    def delete(self, key: Key, options: Any) -> Any:
        there = self.get(key)["metadata"]
        wanted = options.get("preconditions", {}).get("uid", there["uid"])
        if wanted != there["uid"]:
            reason = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {there['uid']}"
            raise Refusal(409, "Conflict", reason)
        return self.remove(key)

    def page(self, place: tuple[str, str, str], query: Any) -> Any:
        """Return a page of a list. Later pages show the same version."""
        if "continue" in query:
            version, found = self.rests[query["continue"]]
            if version < self.compacted:
                raise expired(metadata={"continue": "inconsistent"})
        else:
            group, plural, namespace = place
            there = [(key, each) for key, each in sorted(self.now.items()) if key[:2] == (group, plural)]
            found = [each for key, each in there if namespace in ("", key[2]) and selected(each, query)]
            version = self.version
        limit = int(query.get("limit", 0)) or len(found)
        meta = {"resourceVersion": str(version)}
        if rest := found[limit:]:
            meta["continue"] = f"page {len(self.rests)}"
            self.rests[meta["continue"]] = (version, rest)
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": found[:limit]}

    def changes(self, place: tuple[str, str, str], query: Any, since: int) -> list[tuple[int, Any]]:
        if since < self.compacted:
            raise expired()
        group, plural, namespace = place
        events = []
        for entry in self.history:
            is_here = entry.key[:2] == (group, plural) and namespace in ("", entry.key[2])
            if entry.version <= since or not is_here:
                continue
            is_in = selected(entry.object, query)
            was_in = entry.before is not None and selected(entry.before, query)
            if is_in or was_in:
                how = entry.type if is_in and was_in else "DELETED" if was_in else "ADDED"
                events.append((entry.version, {"type": how, "object": entry.object}))
        return events


def selected(manifest: Any, query: Any) -> bool:
    labels = manifest["metadata"].get("labels", {})
    for label in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = label.partition("=")
        if key.startswith("!"):
            if key[1:] in labels:
                return False
            continue
        if key not in labels or (equals and labels[key] != value):
            return False
    selector = query.get("fieldSelector", "")
    path, _, wanted = selector.partition("=")
    found = manifest
    for part in path.split(".") if path else ():
        found = found.get(part, {})
    return not selector or found == wanted
