"""Reads container logs from the API server, across container restarts and lost connections."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

from backend_plugin.core.observed import Container, Pod, read_pod
from backend_plugin.core.reading import in_order, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.kube import wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api, Silent
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import PODS
from backend_plugin.kube.lines import Lines
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.shell.cluster import LogLine, LogRequest, Name, Unavailable

_LONGEST: Final = 1 << 18
"""The maximum length of a line in bytes."""
_SILENCE: Final = 300.0
"""Seconds without data after which the log is requested again, from the last line."""
_PAUSE: Final = 1.0
_MOST_FAILURES: Final = 5
_ENDED: Final = ("Succeeded", "Failed")


class ContainerLog:
    """The log of one container, for one client."""

    def __init__(self, api: Api, permissions: Permissions, pod: Name, request: LogRequest) -> None:
        self._api = api
        self._permissions = permissions
        self._name = pod
        self._request = request
        self._last = self._since = ""
        """The timestamp of the last line, now and when the current request was sent. In UTC."""
        self._failures = 0

    async def lines(self) -> AsyncGenerator[LogLine, None]:
        """Yield the lines until the log that was requested is complete.

        Raises:
            Unavailable: If the log cannot be read.
        """
        request = self._request
        while (pod := await self._pod()) is not None:
            last = not request.follow or request.previous or _is_over(pod, request.container)
            async with aclosing(self._run(follow=not last)) as run:
                async for line in run:
                    yield line
            if last and not self._failures:
                return
            await asyncio.sleep(_PAUSE)

    async def _run(self, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of one API response."""
        self._since = self._last
        try:
            question = self._question(follow=follow)
            async with self._api.stream(question, _SILENCE) as said, aclosing(_split(said.pieces)) as split:
                async for line, cut in split:
                    if (told := self._told(line, cut)) is not None:
                        yield told
            self._failures = 0
        except Answered as answer:
            # 400: the container has not started, or there was no previous run; 404: the pod is gone.
            if answer.code == HTTPStatus.BAD_REQUEST or answer.is_not_found:
                self._failures = 0
            else:
                self._failed(self._unavailable(answer, "log"), passing=answer.is_passing)
        except Silent:
            pass
        except Unavailable as lost:
            self._failed(lost)

    async def _pod(self) -> Manifest | None:
        path = PODS.path(self._name.namespace, self._name.name)
        try:
            found = await self._api.object(Question(path=path))
        except Answered as answer:
            if answer.is_not_found:
                return None
            raise self._unavailable(answer, "") from answer
        return found if self._name.uid in (None, text(wire.metadata(found), "uid")) else None

    def _question(self, *, follow: bool) -> Question:
        request = self._request
        query = {"container": request.container, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        if request.previous:
            query["previous"] = "true"
        if self._since:
            query["sinceTime"] = f"{self._since[:19]}Z"
        elif request.tail is not None:
            query["tailLines"] = str(request.tail)
        return Question(path=PODS.path(self._name.namespace, self._name.name) + "/log", query=query)

    def _told(self, line: bytes, cut: int) -> LogLine | None:
        """Return a line, or None if it was yielded before: `sinceTime` has whole seconds."""
        self._failures = 0
        time, _, said = line.decode(errors="replace").partition(" ")
        # Kubelets write local time; the clock of a node may stop or go back within one response.
        at = in_order(time)
        if at <= self._since:
            return None
        self._last = at
        return LogLine(time=time, text=f"{said} [{cut} bytes more]" if cut else said)

    def _failed(self, trouble: Unavailable, *, passing: bool = True) -> None:
        """Raise the error if it is permanent, if the client does not follow, or after repeated failures."""
        self._failures += 1
        if not (self._request.follow and passing) or self._failures >= _MOST_FAILURES:
            raise trouble

    def _unavailable(self, answer: Answered, sub: str) -> Unavailable:
        if answer.is_not_authorized:
            rule = Rule(resource=PODS, verbs=("get",), namespace=self._name.namespace, sub=sub)
            return Unavailable(self._permissions.missing(rule, answer.message))
        return Unavailable(str(answer))


async def _split(pieces: AsyncIterator[bytes]) -> AsyncGenerator[tuple[bytes, int], None]:
    """Yield the lines and the number of bytes cut from each. A last line without line end is included."""
    lines = Lines(_LONGEST)
    async for piece in pieces:
        for line in lines.feed(piece):
            yield line, lines.cut
    if lines.rest:
        yield lines.rest, 0


def _is_over(manifest: Manifest, container: str) -> bool:
    """True if the container will not run again."""
    pod = read_pod(manifest)
    if pod.phase in _ENDED:
        return True
    ended = next((each.ended for each in _containers(pod) if each.name == container), None)
    policy = text(section(manifest, "spec"), "restartPolicy")
    return ended is not None and (policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0))


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.containers, *pod.init_containers)
