"""Lists and watches one kind in one namespace and retries after errors."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Final, NoReturn

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.observed import Job, Pod
from backend_plugin.core.reading import get_text
from backend_plugin.kube import json_decoder, protobuf_envelope
from backend_plugin.kube.api_client import ApiClient, ResponseStream, StreamStalled
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import JOBS, WatchedKind
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.decoder import ListPage, MalformedResponse, WatchedObject, WatchEvent
from backend_plugin.kube.list_watch import ListStep, ListWatch, PauseStep, WatchStep
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.kube.pod_decoder import PodDecoder
from backend_plugin.kube.watch_merge import KindPart
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.watch_status import WatchState, WatchStatus

log = logging.getLogger(__name__)

_LONGEST: Final = 1 << 24
"""The maximum size of one object in bytes. etcd accepts a tenth of it."""
_RETRIED_REFUSALS: Final = 2
"""The number of successive 403 responses retried soon. A starting API server has no RBAC rules for 1 s."""
_STALE_AFTER_TIMEOUTS: Final = 2
"""The number of watch timeouts in a row after which the watch is stale. One bookmark may be late."""
_WITH_BOOKMARKS: Final = (Job, Pod)
"""The kinds whose watches always receive bookmarks. Watches of Events receive none. For a kind without
objects, such as an unused PodGroup, API servers before 1.33 send no bookmark until the first change."""
_JOBS: Final = frozenset(map(str, JOBS.values()))
_OPERATORS: Final = " or ".join(f"the {each.operator}" for each in DIALECTS.values())
_AT_ONCE: Final = 100
"""The number of objects that are parsed before other asyncio tasks run; their parsing takes about 3 ms."""
_WATCH_PAUSE_SECONDS: Final = 0.08
"""The delay between two reads of a watch: changes that are received and parsed together cost less."""
_BACKLOG: Final = 2**16
"""After a received piece of at least this many bytes, the next read is not delayed: more data may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTarget:
    """What one reflector watches (kind and namespace), and the receivers of its records and of its state."""

    kind: WatchedKind
    namespace: str
    """The watched namespace; empty for all namespaces."""
    part: KindPart
    """The receiver of the records. They are merged with those of the other reflectors for the same kind."""
    watch_status: WatchStatus
    after: Sequence[asyncio.Event] = ()
    """The reflector starts when all these events are set."""

    def __str__(self) -> str:
        return f"{self.kind} in {self.namespace}" if self.namespace else str(self.kind)


class Reflector:
    """Lists and watches the objects of one `WatchTarget`."""

    def __init__(
        self, api: ApiClient, place: WatchTarget, permissions: Permissions, options: KubernetesOptions
    ) -> None:
        self._api = api
        self._place = place
        self._kind = place.kind
        self._permissions = permissions
        self._options = options
        self._course = ListWatch(chance=random.random)
        self._json = json_decoder.JsonDecoder(place.kind.wire, place.kind.read)
        self._version = place.kind.resource.version
        self._found: list[WatchedObject] = []
        self._ahead: tuple[ListStep, asyncio.Task[bytes]] | None = None
        """The request for the next page, sent while the current page is parsed."""
        self._refusals: Counter[str] = Counter()
        """The number of 403 responses in a row, by verb."""
        self._silent_watches = 0
        """The number of watches in a row that ended without data although a bookmark was due."""
        self._is_failing = False
        """True if an error was logged and the watch has not recovered."""
        self._state = WatchState.SYNCING
        self._set_state(self._state)

    async def run(self) -> NoReturn:
        """List and watch the objects until cancelled."""
        for synced in self._place.after:
            await synced.wait()
        try:
            await self._run_steps()
        finally:
            if self._ahead is not None:
                self._ahead[1].cancel()

    async def _run_steps(self) -> NoReturn:
        while True:
            try:
                await self._run_step()
            except ApiError as answer:
                self._on_api_error(answer)
            except StreamStalled as silent:
                self._on_stall(silent)
            except (ClusterUnavailable, MalformedResponse) as error:
                self._report_failure(str(error), type(error).__name__)
                self._course.on_failure()

    async def _run_step(self) -> None:
        match self._course.decide_next_step(asyncio.get_running_loop().time()):
            case PauseStep(seconds=seconds):
                await asyncio.sleep(seconds)
            case ListStep() as step:
                await self._list_page(step)
            case WatchStep() as step:
                await self._watch_changes(step)

    # ---- list

    async def _list_page(self, step: ListStep) -> None:
        if not step.rest:
            self._found = []
            if not self._kind.resource.version:
                self._version = await self._fetch_preferred_version()
        body = await self._fetch_page(step)
        page = self._select_decoder(protobuf=protobuf_envelope.is_wrapped(body)).decode_page(body)
        if page.rest:  # The API server prepares the next page while this one is parsed.
            following = ListStep(rest=page.rest)
            self._ahead = following, asyncio.create_task(self._request_page(following))
        self._found += await _decode_items(page)
        if page.rest:
            self._course.on_page(page.rest)
            return
        found, self._found = self._found, []
        self._course.on_list_end(page.version, asyncio.get_running_loop().time())
        self._record_granted("list")
        self._receive()
        self._place.part.replace_records(found)
        if not self._is_stalled:
            self._report_recovery()

    async def _fetch_page(self, step: ListStep) -> bytes:
        if self._ahead is not None:
            (requested, task), self._ahead = self._ahead, None
            if requested == step:
                return await task
            task.cancel()  # This page is not needed: the page before could not be parsed.
        return await self._request_page(step)

    async def _request_page(self, step: ListStep) -> bytes:
        query = {"limit": str(self._options.page)} | ({"continue": step.rest} if step.rest else {})
        return await self._api.send_once(self._build_request(query))

    async def _fetch_preferred_version(self) -> str:
        group = json_decoder.decode_object(
            await self._api.send_once(ApiRequest(path=f"/apis/{self._kind.resource.group}"))
        )
        version = get_text(group, "preferredVersion", "version")
        if not version:
            raise MalformedResponse(f"no version of {self._kind.resource.group}")
        return version

    def _select_decoder(self, *, protobuf: bool) -> json_decoder.JsonDecoder | PodDecoder:
        return self._kind.protobuf if protobuf and self._kind.protobuf is not None else self._json

    # ---- watch

    async def _watch_changes(self, step: WatchStep) -> None:
        loop = asyncio.get_running_loop()
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": step.version,
            "timeoutSeconds": str(step.seconds),
        }
        began = loop.time()
        async with self._api.open_stream(self._build_request(query), self._options.silence) as stream:
            self._record_granted("watch")
            # Without bookmarks, a working watch may receive no data for a long time.
            if self._kind.record not in _WITH_BOOKMARKS:
                self._receive()
            if not self._is_stalled:
                self._set_state(WatchState.SYNCED)
            await self._read_stream(stream)
        self._course.on_watch_end(loop.time() - began)

    async def _read_stream(self, stream: ResponseStream) -> None:
        parser = self._select_decoder(protobuf=stream.media_type == protobuf_envelope.MEDIA_TYPE)
        parts = parser.splitter(_LONGEST)
        async for piece in stream.pieces:
            self._silent_watches = 0
            for part in parts.feed(piece):
                if parts.cut:
                    raise MalformedResponse(f"an object of {len(part) + parts.cut} bytes")
                self._apply_event(parser.decode_event(part))
            self._receive()
            self._report_recovery()
            if len(piece) < _BACKLOG:
                await stream.pause(_WATCH_PAUSE_SECONDS)
            else:
                await asyncio.sleep(0)
        if parts.remainder:
            raise MalformedResponse(f"the connection ended within a watch event of {self._place}")

    def _apply_event(self, change: WatchEvent) -> None:
        """Apply one watch event to the records of this kind. A bookmark changes no record."""
        item = change.item
        if change.type in ("ADDED", "MODIFIED"):
            self._place.part.apply_change(item)
        elif change.type == "DELETED":
            self._place.part.apply_deletion(item)
        self._course.on_progress(item.version)

    # ---- errors

    @property
    def _is_stalled(self) -> bool:
        return self._silent_watches >= _STALE_AFTER_TIMEOUTS

    def _on_stall(self, silent: StreamStalled) -> None:
        self._silent_watches += self._kind.record in _WITH_BOOKMARKS
        if self._is_stalled:
            # Events may be lost on the way, as in a proxy that buffers them; a later list corrects that.
            self._report_failure(
                f"{silent}, although the API server sends a bookmark each minute", type(silent).__name__
            )
            self._course.on_failure()
        else:
            # Continue from the last version: a watch without changes is not an error.
            self._course.on_watch_end(self._options.silence)

    def _on_api_error(self, answer: ApiError) -> None:
        self._silent_watches = 0
        match answer.code:
            case HTTPStatus.GONE:
                self._course.on_expired()
            case HTTPStatus.FORBIDDEN if answer.is_not_authorized:
                self._on_forbidden(answer)
            case HTTPStatus.NOT_FOUND if answer.is_not_served:
                self._on_not_served(answer)
            case _:
                self._report_failure(str(answer), answer.reason)
                if answer.is_transient:
                    self._course.on_failure(answer.retry_after)
                else:
                    self._course.on_permanent_error(self._options.refused_pause)

    def _on_not_served(self, answer: ApiError) -> None:
        if not (self._kind.optional or self._place.watch_status.is_any_synced(_JOBS)):
            message = f"the cluster does not have this resource; install {_OPERATORS}"
            self._report_failure(message, answer.reason)
        self._set_state(WatchState.NOT_SERVED)
        self._place.part.mark_unavailable(permitted=True)
        self._course.on_permanent_error(self._options.refused_pause)

    def _on_forbidden(self, answer: ApiError) -> None:
        verb = "watch" if " watch " in answer.message else "list"
        self._refusals[verb] += 1
        if self._refusals[verb] <= _RETRIED_REFUSALS:
            self._report_failure(str(answer), answer.reason)
            self._course.on_failure()
            return
        sentence = self._permissions.record_missing(self._build_rule(verb), answer.message)
        self._set_state(WatchState.FORBIDDEN, sentence)
        self._place.watch_status.record_failure(answer.reason)
        self._place.part.mark_unavailable(permitted=False)
        self._course.on_permanent_error(self._options.refused_pause)

    def _set_state(self, state: WatchState, failure: str = "") -> None:
        self._state = state
        # Errors about missing jobs contain only failures of jobs and pods. The server may lack the permission
        # to list other kinds, such as PodGroups.
        shown = failure if self._kind.record in (Job, Pod) else ""
        self._place.watch_status.set_state(str(self._kind), self._place.namespace, state, shown)

    def _receive(self) -> None:
        self._place.watch_status.receive(str(self._kind), self._place.namespace)

    def _record_granted(self, verb: str) -> None:
        self._refusals[verb] = 0
        self._permissions.record_granted(self._build_rule(verb))

    def _report_failure(self, error: str, word: str) -> None:
        self._place.watch_status.record_failure(word)
        self._set_state(WatchState.STALE, error)
        if not self._is_failing:
            self._is_failing = True
            log.warning("cannot watch %s; retrying: %s", self._place, error)

    def _report_recovery(self) -> None:
        if self._state is not WatchState.SYNCED:
            self._set_state(WatchState.SYNCED)
        if self._is_failing:
            self._is_failing = False
            log.info("watching %s again", self._place)

    def _build_rule(self, verb: str) -> PolicyRule:
        # After a list, the reflector needs the verb `watch`, so an admin should add both.
        verbs = ("list", "watch") if verb == "list" else ("watch",)
        return self._permissions.build_rule(self._kind.resource, self._place.namespace, *verbs)

    def _build_request(self, query: dict[str, str]) -> ApiRequest:
        path = self._kind.resource.build_path(self._place.namespace, version=self._version)
        accept = "application/json" if self._kind.protobuf is None else protobuf_envelope.ACCEPT
        return ApiRequest(path=path, query={**self._kind.query, **query}, accept=accept)


async def _decode_items(page: ListPage) -> list[WatchedObject]:
    """Parse all objects of a page in small groups, so that the event loop runs other tasks in between."""
    found: list[WatchedObject] = []
    items = iter(page.items)
    while True:
        await asyncio.sleep(0)
        some = [*islice(items, _AT_ONCE)]
        if not some:
            return found
        found += some
