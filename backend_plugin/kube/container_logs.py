"""Reads container logs from the API server, across container restarts and lost connections."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

from backend_plugin.core.object_readers import read_pod
from backend_plugin.core.reading import format_sortable_time, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.kube.api_client import ApiClient, StreamStalled
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import PODS
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.permissions import Permissions
from backend_plugin.kube.splitters import LineSplitter
from backend_plugin.shell.cluster import ClusterUnavailable, LogLine, LogRequest, ObjectName

_LONGEST: Final = 1 << 18
"""The maximum length of a line in bytes."""
_SILENCE: Final = 300.0
"""Seconds without data after which the log is requested again, from the last line."""
_PAUSE: Final = 1.0
_MAX_FAILURES: Final = 5
_ENDED: Final = ("Succeeded", "Failed")


class ContainerLog:
    """Reads the log of one container for one request, across container restarts and lost connections."""

    def __init__(
        self, api: ApiClient, permissions: Permissions, pod: ObjectName, request: LogRequest
    ) -> None:
        self._api = api
        self._permissions = permissions
        self._name = pod
        self._request = request
        self._last = self._since = ""
        """UTC timestamps: `_last` of the last yielded line; `_since` of the last line of earlier requests."""
        self._failures = 0

    async def iter_lines(self) -> AsyncGenerator[LogLine, None]:
        """Yield the lines that the `LogRequest` selects; if it follows the log, until the container ends.

        Raises:
            ClusterUnavailable: If the log cannot be read.
        """
        while (pod := await self._fetch_pod()) is not None:
            last = self._is_last_request(pod)
            async with aclosing(self._iter_response_lines(follow=not last)) as run:
                async for line in run:
                    yield line
            if last and not self._failures:
                return
            await asyncio.sleep(_PAUSE)

    def _is_last_request(self, pod: Manifest) -> bool:
        """True if the next request returns all remaining lines, unless it fails."""
        return not self._request.follow or self._request.previous or self._is_finished(pod)

    async def _iter_response_lines(self, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        self._since = self._last
        try:
            api_request = self._build_request(follow=follow)
            async with (
                self._api.open_stream(api_request, _SILENCE) as response,
                aclosing(_split_lines(response.pieces)) as split,
            ):
                async for line, cut in split:
                    if (new_line := self._decode_new_line(line, cut)) is not None:
                        yield new_line
            self._failures = 0
        except ApiError as answer:
            self._record_api_error(answer)
        except StreamStalled:
            pass
        except ClusterUnavailable as lost:
            self._record_failure(lost)

    def _record_api_error(self, answer: ApiError) -> None:
        # 400: the container has not started, or there was no previous run; 404: the pod is gone.
        if answer.code == HTTPStatus.BAD_REQUEST or answer.is_not_found:
            self._failures = 0
        else:
            self._record_failure(self._build_unavailable(answer, "log"), passing=answer.is_transient)

    async def _fetch_pod(self) -> Manifest | None:
        path = PODS.build_path(self._name.namespace, self._name.name)
        try:
            found = await self._api.fetch_object(ApiRequest(path=path))
        except ApiError as answer:
            if answer.is_not_found:
                return None
            raise self._build_unavailable(answer, "") from answer
        return found if self._name.uid in (None, get_text(found, "metadata", "uid")) else None

    def _build_request(self, *, follow: bool) -> ApiRequest:
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
        return ApiRequest(path=PODS.build_path(self._name.namespace, self._name.name) + "/log", query=query)

    def _decode_new_line(self, line: bytes, cut: int) -> LogLine | None:
        """Parse a line of the log; return None if an earlier request has already yielded it.

        `cut` bytes are missing at the end of a line that was too long. The log is requested from a whole
        second on (`sinceTime`), so a response may repeat lines.
        """
        self._failures = 0
        time, _, text = line.decode(errors="replace").partition(" ")
        # Kubelets write local time. Compare with `_since`, because a node's clock may go back in a response.
        at = format_sortable_time(time)
        if at <= self._since:
            return None
        self._last = at
        return LogLine(time=time, text=f"{text} [{cut} bytes more]" if cut else text)

    def _is_finished(self, manifest: Manifest) -> bool:
        pod = read_pod(manifest)
        if pod.phase in _ENDED:
            return True
        containers = (*pod.containers, *pod.init_containers)
        ended = next((each.ended for each in containers if each.name == self._request.container), None)
        policy = get_text(manifest, "spec", "restartPolicy")
        return ended is not None and (policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0))

    def _record_failure(self, error: ClusterUnavailable, *, passing: bool = True) -> None:
        """Count a failure. Raise `error`, unless the log should be requested again.

        It should be requested again if the client follows the log, the error is transient (`passing`), and
        there were fewer than `_MAX_FAILURES` errors since the last line.
        """
        self._failures += 1
        if not (self._request.follow and passing) or self._failures >= _MAX_FAILURES:
            raise error

    def _build_unavailable(self, answer: ApiError, sub: str) -> ClusterUnavailable:
        rule = self._permissions.build_rule(PODS, self._name.namespace, "get", sub=sub)
        return self._permissions.build_unavailable(answer, rule)


async def _split_lines(pieces: AsyncIterator[bytes]) -> AsyncGenerator[tuple[bytes, int], None]:
    """Yield each line with the number of bytes cut from it; a last line without line end is included."""
    lines = LineSplitter(_LONGEST)
    async for piece in pieces:
        for line in lines.feed(piece):
            yield line, lines.cut
    if lines.remainder:
        yield lines.remainder, 0
