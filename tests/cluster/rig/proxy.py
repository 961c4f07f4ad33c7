"""A fault-injecting HTTP proxy between a server and the API server.

It accepts plain HTTP and connects with TLS. Clients authenticate with their own tokens.
"""

import asyncio
import contextlib
import enum
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http import HTTPStatus

import aiohttp
from aiohttp import web
from threaded_server import ThreadedServer, abort
from yarl import URL

from rig.control_plane import HERE, ControlPlane

_HOPS = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}
# Timestamps that the API server, a controller or a kubelet writes. Timestamps of our server are not shifted.
_TIMES = re.compile(
    rb'"(creationTimestamp|deletionTimestamp|lastTransitionTime|lastUpdateTime|startTime|completionTime'
    rb'|startedAt|finishedAt|firstTimestamp|lastTimestamp|eventTime)":"([^"]+)"'
)


class How(enum.Enum):
    ANSWER = "the proxy responds instead of the API server"
    RESET_BEFORE = "the connection breaks before the API server receives the request"
    RESET_AFTER = "the API server handles the request, and the connection breaks"
    CUT = "the connection breaks after half of the response"
    TRUNCATE = "half of the response is sent as if it were complete"


@dataclass(frozen=True, kw_only=True)
class ProxyFault:
    how: How = How.ANSWER
    code: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def status(code: int, reason: str, message: str = "on a bad day", **headers: str) -> ProxyFault:
    """Return a fault with the Status response of the API server. `Retry_After="1"` sets a header."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return ProxyFault(
        code=code, headers={"Content-Type": "application/json", **given}, body=json.dumps(body).encode()
    )


class Proxy(ThreadedServer):
    """A context manager that serves one port of this machine. Its public methods are thread-safe."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__()
        self._target = plane.server
        self._tls = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self.befell: list[How] = []
        self.choose: Callable[[Mapping[str, str]], ProxyFault | None] = lambda _: None
        """Return the fault for a request with these query parameters, or None."""
        self.skew = timedelta()  # The offset of the cluster's clocks from this machine.
        self._session: aiohttp.ClientSession

    def __enter__(self) -> "Proxy":
        self.url = f"http://{HERE}:{self.listen()}"
        self.run(self._connect())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.run(self._disconnect())
        self.close()

    # ---- methods that run in the thread of the event loop

    async def _connect(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def _disconnect(self) -> None:
        await self._session.close()
        # Closing a TLS transport takes several iterations of the event loop.
        for _ in range(10):
            await asyncio.sleep(0.01)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Hand the request on, or let its fault happen."""
        fault = self.choose(request.query)
        try:
            if fault is None:
                return await self._handed_on(request)
            self.befell.append(fault.how)
            return await self._befallen(request, fault)
        except aiohttp.ClientError:
            abort(request)  # The API server is unavailable, so abort the connection of the client, too.
            return web.Response()

    async def _befallen(self, request: web.Request, fault: ProxyFault) -> web.StreamResponse:
        match fault.how:
            case How.ANSWER:
                return web.Response(status=fault.code, headers=fault.headers, body=fault.body)
            case How.RESET_BEFORE:
                abort(request)
                return web.Response()
        async with self._forward(request) as answer:
            body = await answer.read()
            half = body[: len(body) // 2]
            if fault.how is How.TRUNCATE:
                return web.Response(status=answer.status, headers=_select_headers(answer), body=half)
            if fault.how is How.CUT:
                cut = await self._begun(request, {"Content-Length": str(len(body))})
                await cut.write(half)
            abort(request)
            return web.Response()

    async def _handed_on(self, request: web.Request) -> web.StreamResponse:
        async with self._forward(request) as answer:
            if request.query.get("watch") != "true" or answer.status != HTTPStatus.OK:
                body = self._shifted(await answer.read())
                headers = {**_select_headers(answer), "Date": self._date()}
                return web.Response(status=answer.status, headers=headers, body=body)
            headers = {"Date": self._date(), "Content-Type": answer.headers["Content-Type"]}
            response = await self._begun(request, headers)
            async for piece in self._pieces(answer):
                await response.write(piece)
            return response

    async def _pieces(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        if answer.content_type != "application/json":
            async for piece in answer.content.iter_any():
                yield piece
            return
        # Split at line ends, because a timestamp may span two chunks.
        rest = b""
        async for piece in answer.content.iter_any():
            whole, _, rest = (rest + piece).rpartition(b"\n")
            if whole:
                yield self._shifted(whole + b"\n")

    @contextlib.asynccontextmanager
    async def _forward(self, request: web.Request) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._session.request(
            request.method,
            URL(self._target + request.path_qs, encoded=True),
            data=await request.read() or None,
            headers=self._build_headers(request),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            yield answer

    def _build_headers(self, request: web.Request) -> Mapping[str, str]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
        # Timestamps are shifted only in JSON.
        if self.skew and "protobuf" in headers.get("Accept", ""):
            headers["Accept"] = "application/json"
        return headers

    @staticmethod
    async def _begun(request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", **headers})
        await response.prepare(request)
        return response

    def _date(self) -> str:
        return format_datetime(datetime.now(timezone.utc) + self.skew, usegmt=True)

    def _shifted(self, body: bytes) -> bytes:
        return _TIMES.sub(self._later, body) if self.skew else body

    def _later(self, found: "re.Match[bytes]") -> bytes:
        name, time = found.groups()
        at = datetime.fromisoformat(time.decode()) + self.skew
        return b'"%s":"%s"' % (name, at.isoformat().replace("+00:00", "Z").encode())


def _select_headers(answer: aiohttp.ClientResponse) -> Mapping[str, str]:
    return {name: value for name, value in answer.headers.items() if name.lower() not in _HOPS}
