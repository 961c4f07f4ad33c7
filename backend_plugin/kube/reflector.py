"""Lists and watches one kind in one namespace and retries after errors.

`course` decides the next step. `gathering` receives the records.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Final, NoReturn

from backend_plugin.core.observed import Job, Pod
from backend_plugin.core.reading import section, text
from backend_plugin.kube import envelope, wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api, Silent, Stream
from backend_plugin.kube.connection import Question
from backend_plugin.kube.course import Course, List, Pause, Watch
from backend_plugin.kube.gathering import Part
from backend_plugin.kube.kinds import Kind, Resource
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.parsed import Change, Malformed, Page, Parser, Seen
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.shell.cluster import Unavailable
from backend_plugin.shell.sight import Sight, State
from backend_plugin.shell.timeouts import timeout

log = logging.getLogger(__name__)

_LONGEST: Final = 1 << 24
"""The maximum size of one object in bytes. etcd accepts a tenth of it."""
_DOUBTED: Final = 2
"""The number of 403 responses in a row that are retried soon. A starting API server has no rules for 1 s."""
_DEAF: Final = 2
"""The number of watch timeouts in a row after which the watch is stale. One bookmark may be late."""
_SPOKEN: Final = (Job, Pod)
"""The kinds whose watches always receive bookmarks. Events have no bookmarks. For an unused kind, as some
PodGroups are, API servers before 1.33 send no bookmark until the first change."""
_AT_ONCE: Final = 100
"""The number of objects that are parsed without yielding to the event loop, which takes about 3 ms."""
_WATCH_PAUSE_SECONDS: Final = 0.02
"""The delay between two reads of a watch: changes that are parsed together cost less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A kind in one namespace, and the receivers of its records and state."""

    kind: Kind
    namespace: str
    """Empty for all namespaces."""
    part: Part
    sight: Sight
    after: Sequence[asyncio.Event] = ()
    """The reflector starts when all these events are set."""

    def __str__(self) -> str:
        return f"{self.kind} in {self.namespace}" if self.namespace else str(self.kind)


class Reflector:
    """Lists and watches the objects of one `Place`."""

    def __init__(
        self,
        api: Api,
        place: Place,
        permissions: Permissions,
        options: KubernetesOptions,
    ) -> None:
        self._api = api
        self._place = place
        self._kind = place.kind
        self._permissions = permissions
        self._options = options
        self._course = Course(chance=random.random, page=options.page)
        self._json: Parser = wire.Parser(place.kind.wire, place.kind.read)
        self._version = place.kind.resource.version
        self._found: list[Seen] = []
        self._ahead: tuple[List, asyncio.Task[bytes]] | None = None
        """The request for the next page, sent while the current page is parsed."""
        self._refusals: Counter[str] = Counter()
        """The number of 403 responses in a row, by verb."""
        self._silences = 0
        """The number of watches in a row that ended without data although a bookmark was due."""
        self._made = asyncio.Event()
        """Set if the backend created an object of this kind since the last list, so the kind is served."""
        self._trouble = False
        """True if an error was logged and the watch has not recovered."""
        self._state = State.WAITING
        self._stands(self._state)

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        for told in self._place.after:
            await told.wait()
        try:
            await self._follow()
        finally:
            if self._ahead is not None:
                self._ahead[1].cancel()

    async def _follow(self) -> NoReturn:
        while True:
            try:
                await self._step()
            except Answered as answer:
                await self._answered(answer)
            except Silent as silent:
                self._silent(silent)
            except (Unavailable, Malformed) as trouble:
                self._tell(str(trouble), type(trouble).__name__)
                self._course.failed()

    async def _step(self) -> None:
        match self._course.step(asyncio.get_running_loop().time()):
            case Pause(seconds=seconds):
                await self._pause(seconds)
            case List() as step:
                await self._list(step)
            case Watch() as step:
                await self._watch(step)

    def made(self, resource: Resource) -> None:
        """Retry discovery without delay if this reflector waits for the API server to serve `resource`."""
        ours = self._kind.resource
        if (resource.group, resource.plural) == (ours.group, ours.plural):
            self._made.set()

    async def _pause(self, seconds: float) -> None:
        if self._state is not State.ABSENT:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                await self._made.wait()

    # ---- list

    async def _list(self, step: List) -> None:
        if not step.rest:
            self._found = []
            self._made.clear()
            if not self._kind.resource.version:
                self._version = await self._preferred()
        body = await self._page(step)
        page = self._parser(protobuf=envelope.is_wrapped(body)).page(body)
        if page.rest:  # The API server prepares the next page while this one is parsed.
            following = List(limit=step.limit, rest=page.rest)
            self._ahead = following, asyncio.create_task(self._ask(following))
        self._found += await _all_of(page)
        if page.rest:
            self._course.paged(page.rest)
            return
        found, self._found = self._found, []
        self._course.listed(page.version, asyncio.get_running_loop().time())
        self._granted("list")
        self._receive()
        self._place.part.replace(found)
        if not self._is_deaf:
            self._well()

    async def _page(self, step: List) -> bytes:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return await self._ask(step)
        asked, task = ahead
        if asked == step:
            return await task
        task.cancel()  # The page before it could not be parsed.
        return await self._ask(step)

    async def _ask(self, step: List) -> bytes:
        query = {"limit": str(step.limit)} | ({"continue": step.rest} if step.rest else {})
        return await self._api.once(self._question(query))

    async def _preferred(self) -> str:
        """Return the preferred version of the kind's API group in this cluster."""
        said = wire.object_of(await self._api.once(Question(path=f"/apis/{self._kind.resource.group}")))
        version = text(section(said, "preferredVersion"), "version")
        if not version:
            raise Malformed(f"no version of {self._kind.resource.group}")
        return version

    def _parser(self, *, protobuf: bool) -> Parser:
        """Return the parser for the encoding of the response, which may differ from the accepted one."""
        return self._kind.protobuf if protobuf and self._kind.protobuf is not None else self._json

    # ---- watch

    async def _watch(self, step: Watch) -> None:
        loop = asyncio.get_running_loop()
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": step.version,
            "timeoutSeconds": str(step.seconds),
        }
        began = loop.time()
        async with self._api.stream(self._question(query), self._options.silence) as stream:
            self._granted("watch")
            if self._kind.record not in _SPOKEN:  # Without bookmarks, a quiet watch sends nothing else.
                self._receive()
            if not self._is_deaf:
                self._stands(State.IN_SIGHT)
            await self._read(stream)
        self._course.ended(loop.time() - began)

    async def _read(self, stream: Stream) -> None:
        parser = self._parser(protobuf=stream.media_type == envelope.MEDIA_TYPE)
        parts = parser.parts(_LONGEST)
        async for piece in stream.pieces:
            self._silences = 0
            for part in parts.feed(piece):
                if parts.cut:
                    size = len(part) + parts.cut
                    log.warning("%s: an object of %d bytes is skipped", self._place, size)
                else:
                    self._change(parser.change(part))
            await asyncio.sleep(_WATCH_PAUSE_SECONDS)
        if parts.rest:
            raise Malformed(f"the connection ended within a watch event of {self._place}")

    def _change(self, change: Change) -> None:
        """Apply one watch event to the records of this kind. A bookmark changes none of them."""
        seen = change.seen
        if change.type in ("ADDED", "MODIFIED"):
            self._place.part.change(seen)
        elif change.type == "DELETED":
            self._place.part.drop(seen)
        self._course.seen(seen.version)
        self._receive()
        self._well()

    # ---- errors

    @property
    def _is_deaf(self) -> bool:
        return self._silences >= _DEAF

    def _silent(self, silent: Silent) -> None:
        self._silences += self._kind.record in _SPOKEN
        if self._is_deaf:
            # Events may be lost on the way, as in a proxy that buffers them; a later list corrects that.
            self._tell(
                f"{silent}, although the API server sends a bookmark each minute", type(silent).__name__
            )
            self._course.failed()
        else:
            # Continue from the last version: a watch without changes is not an error.
            self._course.ended(self._options.silence)

    async def _answered(self, answer: Answered) -> None:
        self._silences = 0
        match answer.code:
            case HTTPStatus.GONE:
                self._course.expired()
            case HTTPStatus.FORBIDDEN if answer.is_not_authorized:
                self._refused("watch" if " watch " in answer.message else "list", answer)
            case HTTPStatus.NOT_FOUND if answer.is_not_served:
                if not self._kind.optional:
                    said = "the cluster does not have this resource; install the training-operator"
                    self._tell(said, answer.reason)
                self._stands(State.ABSENT)
                self._place.part.lack(permitted=True)
                self._course.refused(self._options.refused_pause)
            case HTTPStatus.UNAUTHORIZED:
                self._tell(str(answer), answer.reason)
                await self._api.renew()
                self._course.failed()
            case _ if answer.is_passing:
                self._tell(str(answer), answer.reason)
                self._course.failed(answer.retry_after)
            case _:
                self._tell(str(answer), answer.reason)
                self._course.refused(self._options.refused_pause)

    def _refused(self, verb: str, answer: Answered) -> None:
        self._refusals[verb] += 1
        if self._refusals[verb] <= _DOUBTED:
            self._tell(str(answer), answer.reason)
            self._course.failed()
            return
        self._permissions.missing(self._rule(verb), answer.message)
        self._stands(State.REFUSED)
        self._place.sight.trouble(answer.reason)
        self._place.part.lack(permitted=False)
        self._course.refused(self._options.refused_pause)

    def _stands(self, state: State) -> None:
        self._state = state
        self._place.sight.stands(str(self._kind), self._place.namespace, state)

    def _receive(self) -> None:
        self._place.sight.receive(str(self._kind), self._place.namespace)

    def _granted(self, verb: str) -> None:
        self._refusals[verb] = 0
        self._permissions.granted(self._rule(verb))

    def _tell(self, trouble: str, word: str) -> None:
        self._place.sight.trouble(word)
        self._stands(State.OUT_OF_SIGHT)
        if not self._trouble:
            self._trouble = True
            log.warning("cannot watch %s; retrying: %s", self._place, trouble)

    def _well(self) -> None:
        if self._state is not State.IN_SIGHT:
            self._stands(State.IN_SIGHT)
        if self._trouble:
            self._trouble = False
            log.info("watching %s again", self._place)

    def _rule(self, verb: str) -> Rule:
        # An admin who adds one of the verbs needs the other one next.
        verbs = ("list", "watch") if verb == "list" else ("watch",)
        return Rule(resource=self._kind.resource, verbs=verbs, namespace=self._place.namespace)

    def _question(self, query: dict[str, str]) -> Question:
        path = self._kind.resource.path(self._place.namespace, version=self._version)
        accept = "application/json" if self._kind.protobuf is None else envelope.ACCEPT
        return Question(path=path, query={**self._kind.query, **query}, accept=accept)


async def _all_of(page: Page) -> list[Seen]:
    """Parse all objects of a page. The event loop runs in between and sends the request for the next page."""
    found: list[Seen] = []
    items = iter(page.items)
    while True:
        await asyncio.sleep(0)
        some = [*islice(items, _AT_ONCE)]
        if not some:
            return found
        found += some
