"""The store of the cluster's objects: in memory for reads, in an SQLite file for durability, with watches."""

import os
import sqlite3
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, TextIO, TypeAlias

import msgspec

from backend_plugin.core.reading import get_int, get_mapping
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded.objects import (
    RESOURCES,
    Key,
    format_time,
    get_key,
    get_owner_uid,
    get_uid,
    with_metadata,
)
from backend_plugin.embedded.state_lock import USABLE, StateUnusable, acquire_lock, open_or_create
from backend_plugin.shell.cluster import AlreadyExists, NotDurable, VersionConflict

_SCHEMA: Final = 1
"""The schema version of the SQLite file. A server reads this version and earlier ones."""

# A killed server loses no committed change, because the operating system still writes it to the disk. A power
# failure may lose the last changes.
_OPEN: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS objects (
    made INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, body BLOB NOT NULL);
PRAGMA user_version = 1;
COMMIT;
"""
_PUT: Final = """
INSERT INTO objects (uid, version, body) VALUES (?, ?, ?)
    ON CONFLICT (uid) DO UPDATE SET version = excluded.version, body = excluded.body
"""

_MOVE: Final = "move it away to start with an empty cluster"
_DAMAGED: Final = (sqlite3.DatabaseError, msgspec.DecodeError, KeyError, TypeError, ValueError)
"""The errors that reading a damaged SQLite file raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """A change of one object."""

    key: Key
    old: Manifest | None
    """The object before the change; None if the object was created."""
    new: Manifest | None
    """The object after the change; None if the object was deleted."""

    @property
    def manifest(self) -> Manifest:
        """The current object, or the last version of a deleted object."""
        return self.new or self.old or {}


Watcher: TypeAlias = Callable[[ObjectChange], None]
Clock: TypeAlias = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(timezone.utc)


class Store:
    """The store of all objects of one cluster. Use it in one thread.

    Objects are immutable values: `update` replaces an object.
    """

    def __init__(self, lock: TextIO, file: sqlite3.Connection, clock: Clock) -> None:
        self._lock = lock
        self._file = file
        self.clock: Final = clock
        self._objects: dict[str, dict[Key, Manifest]]
        """The objects by kind and key, oldest first."""
        self._keys: dict[str, Key]
        self._owned: dict[str, dict[Key, None]]
        self._watchers: list[Watcher] = []
        self._pending: deque[ObjectChange] = deque()
        self._is_notifying = False
        self._version = self._load_objects()

    @classmethod
    def open(cls, directory: Path, clock: Clock = system_clock) -> "Store":
        """Open the store in `directory`, and create the directory if it does not exist.

        Raises:
            StateUnusable: If another server uses the directory, or if its files cannot be read or written.
        """
        with ExitStack() as undo:
            lock = undo.enter_context(acquire_lock(directory))
            path = directory / "objects.sqlite"
            try:
                # Only the owner has access. SQLite gives its other files the same mode.
                os.close(open_or_create(path))
                file = undo.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                _require_usable(file, path)
                file.executescript(_OPEN)
                store = cls(lock, file, clock)
            except (OSError, sqlite3.OperationalError) as error:
                # The contents may be intact, so do not suggest moving the file away.
                raise StateUnusable(f"{path}: {getattr(error, 'strerror', error)}; {USABLE}") from error
            except _DAMAGED as error:
                raise StateUnusable(f"{path}: cannot be read ({error}); {_MOVE}") from error
            undo.pop_all()
        return store

    def close(self) -> None:
        """Close the files of the store and release the lock of its directory."""
        self._watchers.clear()
        self._file.close()
        self._lock.close()

    def get(self, key: Key) -> Manifest | None:
        """Return the object with this key, or None."""
        return self._objects.get(key.kind, {}).get(key)

    def get_by_uid(self, uid: str) -> Manifest | None:
        """Return the object with this uid, or None."""
        key = self._keys.get(uid)
        return None if key is None else self.get(key)

    def list_objects(self, kind: str) -> list[Manifest]:
        """Return all objects of a kind, oldest first."""
        return [*self._objects[kind].values()]

    def list_owned(self, uid: str, kind: str) -> list[Manifest]:
        """Return the objects of a kind that the object with this uid controls, oldest first."""
        return [self._objects[kind][key] for key in self._owned.get(uid, ()) if key.kind == kind]

    def list_owners(self) -> Iterable[str]:
        """Return the uids of all owners that control a stored object, including owners that were deleted."""
        return tuple(self._owned)

    def create(self, manifest: Manifest) -> Manifest:
        """Store a new object durably, and return it with its uid, version and times.

        Raises:
            AlreadyExists: If an object has the same key.
        """
        key = get_key(manifest)
        if key in self._objects[key.kind]:
            raise AlreadyExists(f'{RESOURCES[key.kind]} "{key.name}" already exists')
        generation = {} if "spec" not in manifest else {"generation": 1}
        new = with_metadata(
            manifest, uid=str(uuid.uuid4()), creationTimestamp=format_time(self.clock()), **generation
        )
        return self._store_object(key, None, new)

    def update(self, manifest: Manifest) -> Manifest:
        """Replace the stored object from which `manifest` was derived, and return the new stored object.

        If `manifest` is equal to the stored object, nothing changes.

        Raises:
            VersionConflict: If the stored object has changed or was deleted.
        """
        key = get_key(manifest)
        old = self.get(key)
        if old is None or _get_revision(old) != _get_revision(manifest):
            raise VersionConflict(
                f'Operation cannot be fulfilled on {RESOURCES[key.kind]} "{key.name}": the object has been '
                "modified; please apply your changes to the latest version and try again"
            )
        if old == manifest:
            return old
        if old.get("spec") != manifest.get("spec"):
            generation = get_int(old, "metadata", "generation") or 0
            manifest = with_metadata(manifest, generation=generation + 1)
        return self._store_object(key, old, manifest)

    def remove(self, uid: str) -> Manifest | None:
        """Delete the object with this uid. Return its last version, or None if it does not exist."""
        key = self._keys.get(uid)
        if key is None:
            return None
        self._execute("DELETE FROM objects WHERE uid = ?", uid)
        old = self._objects[key.kind].pop(key)
        del self._keys[uid]
        self._remove_from_owner(old, key)
        self._pending.append(ObjectChange(key=key, old=old, new=None))
        self._notify_watchers()
        return old

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes in the context as one transaction, and notify the watchers afterwards.

        Raises:
            NotDurable: If the transaction cannot be written. After any error, all changes are undone.
        """
        self._execute("BEGIN IMMEDIATE")
        self._is_notifying = True
        try:
            with ExitStack() as undo:
                undo.callback(self._roll_back)
                yield
                self._execute("COMMIT")
                undo.pop_all()
        finally:
            self._is_notifying = False
        self._notify_watchers()

    def _roll_back(self) -> None:
        self._pending.clear()
        if self._file.in_transaction:
            self._execute("ROLLBACK")
        self._version = self._load_objects()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every change from now on, in order.

        A change that a watcher itself makes is delivered after the current change.

        Returns:
            A function that removes the watcher.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def _store_object(self, key: Key, old: Manifest | None, manifest: Manifest) -> Manifest:
        version = self._version + 1
        new = with_metadata(manifest, resourceVersion=str(version))
        self._execute(_PUT, get_uid(new), version, msgspec.json.encode(new))
        self._version = version
        if old is not None and get_owner_uid(old) != get_owner_uid(new):
            self._remove_from_owner(old, key)
        self._index_object(key, new)
        self._pending.append(ObjectChange(key=key, old=old, new=new))
        self._notify_watchers()
        return new

    def _index_object(self, key: Key, manifest: Manifest) -> None:
        self._objects[key.kind][key] = manifest
        self._keys[get_uid(manifest)] = key
        if owner := get_owner_uid(manifest):
            self._owned.setdefault(owner, {})[key] = None

    def _remove_from_owner(self, old: Manifest, key: Key) -> None:
        owner = get_owner_uid(old)
        owned = self._owned.get(owner, {})
        owned.pop(key, None)
        if not owned:
            self._owned.pop(owner, None)

    def _notify_watchers(self) -> None:
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._pending:
                change = self._pending.popleft()
                for watcher in tuple(self._watchers):
                    watcher(change)
        finally:
            self._is_notifying = False

    def _execute(self, statement: str, *values: str | int | bytes) -> None:
        try:
            self._file.execute(statement, values)
        except sqlite3.DatabaseError as error:  # The disk is full, missing or damaged.
            raise NotDurable(f"the cluster's state cannot be written: {error}") from error

    def _load_objects(self) -> int:
        last = 0
        found = self._file.execute("SELECT version, body FROM objects ORDER BY made").fetchall()
        self._objects, self._keys, self._owned = {kind: {} for kind in RESOURCES}, {}, {}
        for version, body in found:
            manifest = msgspec.json.decode(body, type=dict[str, Any])
            self._index_object(get_key(manifest), manifest)
            last = max(last, version)
        return last


def _get_revision(manifest: Manifest) -> tuple[JsonValue, JsonValue]:
    metadata = get_mapping(manifest, "metadata")
    return metadata.get("uid"), metadata.get("resourceVersion")


def _require_usable(file: sqlite3.Connection, path: Path) -> None:
    (schema,) = file.execute("PRAGMA user_version").fetchone()
    if schema > _SCHEMA:
        raise StateUnusable(
            f"{path}: was written by a later release (schema {schema}, this one reads up to {_SCHEMA}); "
            "use that release, or another state directory"
        )
    # An index can be damaged although all objects can be read. Later changes would then be lost.
    (found,) = file.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StateUnusable(f"{path}: is damaged ({' '.join(found.split())}); {_MOVE}")
