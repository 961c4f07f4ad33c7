"""Connections to one API server, with credentials and certificates as they are at the moment.

Lives here: who asks, and which way. Does not: what is asked, and asking again.
"""

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from backend_plugin.kube.channels import CONNECT, Channels, Lost, Place, Reply
from backend_plugin.kube.clock import Clock
from backend_plugin.kube.credentials import Access, Credentials, CredentialsUnusable
from backend_plugin.shell.timeouts import timeout

log = logging.getLogger(__name__)

_RELOAD: Final = 60.0
"""Seconds for which credentials are not read again; a kubelet renews a token minutes before it expires."""
_RENEW: Final = 5.0
"""Seconds between two looks at credentials that were not accepted: each may start a plugin."""
_READ_BUFFER: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request, without who asks."""

    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    doubts: bool = True
    """Ask again where it is not permitted; no, where little hangs on it, or whoever asks comes again."""
    behind: bool = False
    """Nobody waits for it: it takes no turn from what somebody waits for, and may wait for its own."""


class Connection:
    """To be opened and closed once, on one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self.clock: Final = Clock()
        self._credentials = credentials
        self._access = Access(server="")
        self._tls: ssl.SSLContext | None = None
        self._certificates: object = None
        self._proxy: str | None = None
        self._loaded = self._renewed = float("-inf")
        self._loading: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._channels = Channels()

    async def open(self) -> None:
        """Read the credentials; nothing is asked of the cluster yet.

        Raises:
            CredentialsUnusable: If there are none.
        """
        await self._load()
        self._session = aiohttp.ClientSession(
            # How many are asked at a time is for whoever asks; every watch has a connection of its own.
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            # Of the surroundings their proxies only, see `_proxy`: not the passwords of a .netrc.
            trust_env=False,
        )

    async def close(self) -> None:
        """End all connections."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self._channels.close()
        if self._session is not None:
            await self._session.close()

    async def ask(self, question: Question, seconds: float) -> Reply:
        """All of the answer, if it comes within so many seconds; raises what aiohttp or asyncio raises."""
        await self._refresh()
        async with timeout(seconds):
            if self._proxy is None:
                return await self._answer(question)
            async with self.request(question) as response:
                return Reply(response.status, response.headers, await response.read())

    async def _answer(self, question: Question) -> Reply:
        self._check_open()
        access, url = self._access, _url(question, self._access)
        if url.scheme not in ("http", "https") or not url.raw_host or not url.port:
            raise Lost(f"{access.server!r} is no URL of a server: write https://HOST:PORT")
        tls = self._tls if url.scheme == "https" else None
        place = Place(url.raw_host, url.port, tls, access.server_name)
        headers = _headers(question, access)
        if url.raw_user is not None and not access.authorization:
            who = aiohttp.encode_basic_auth(url.user or "", url.password or "")
            headers = {**headers, "Authorization": who}
        message = _message(question, url, headers)
        reply = await self._channels.ask(place, message, may_repeat=question.method != "POST")
        if reply.status < HTTPStatus.BAD_REQUEST:  # Others may be somebody's in between.
            self.clock.heard(reply.headers.get("Date", ""))
        return reply

    @asynccontextmanager
    async def request(
        self, question: Question, silence: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer as it comes, unless nothing comes for so many seconds; raises what aiohttp raises."""
        await self._refresh()
        session, access = self._check_open(), self._access
        async with session.request(
            question.method,
            _url(question, access),
            data=question.body,
            headers=_headers(question, access),
            ssl=self._tls or True,
            server_hostname=access.server_name,
            proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=silence),
            allow_redirects=False,
        ) as response:
            if response.ok:
                self.clock.heard(response.headers.get("Date", ""))
            yield response

    def _check_open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            raise Lost("not connected")
        return self._session

    async def renew(self) -> None:
        """What we have is not accepted: read it again, and use nothing that was kept."""
        if self._loading is not None:
            await asyncio.shield(self._loading)
        elif time.monotonic() - self._renewed > _RENEW:
            self._renewed = time.monotonic()
            self._credentials.forget()
            await self._reloaded()

    async def _refresh(self) -> None:
        if time.monotonic() - self._loaded > _RELOAD:
            await self._reloaded()

    async def _reloaded(self) -> None:
        """Once for all who wait; if they give up, as a plugin takes long, it is there for who asks next."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._reload())
            self._loading.add_done_callback(self._settle)
        await asyncio.shield(self._loading)

    def _settle(self, _: "asyncio.Task[None]") -> None:
        self._loading = None

    async def _reload(self) -> None:
        """Again; what cannot be read at the moment, as while a file is replaced, stays as it was."""
        try:
            await self._load()
        except CredentialsUnusable as unusable:
            self._loaded = time.monotonic()
            log.warning("goes on with the credentials that it has: %s", unusable)

    async def _load(self) -> None:
        access = await self._credentials.load()
        try:
            certificates = (access.verify, *map(_digest, (access.ca_file, access.cert_file, access.key_file)))
            if certificates != self._certificates:
                # A connection that was made with the old one is not used again, but by who has it.
                self._tls, self._certificates = _context(access), certificates
        except (OSError, ValueError) as error:
            raise CredentialsUnusable(
                f"certificates for {access.server}: {error}; see the kubeconfig"
            ) from error
        self._access, self._proxy, self._loaded = access, _proxy(access), time.monotonic()


def _url(question: Question, access: Access) -> URL:
    # Beginning with the path that the server itself may have.
    return URL(access.server + question.path, encoded=True).with_query(question.query)


def _message(question: Question, url: URL, headers: Mapping[str, str]) -> bytes:
    """The question as it is on the wire.

    Raises:
        ValueError: If a header would be two.
    """
    lines = [
        f"{question.method} {url.raw_path_qs} HTTP/1.1",
        f"Host: {url.host_port_subcomponent}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if question.body is not None:
        lines.append(f"Content-Length: {len(question.body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line of the request has more than one line")
    return "\r\n".join((*lines, "", "")).encode() + (question.body or b"")


def _headers(question: Question, access: Access) -> Mapping[str, str]:
    headers = {
        "Accept": question.accept,
        # What is saved on the wire costs more to unpack than it saves within a cluster.
        "Accept-Encoding": "identity",
        "User-Agent": "kfpytorch",
    }
    if access.authorization:
        headers["Authorization"] = access.authorization
    if question.body is not None:
        headers["Content-Type"] = question.content_type
    return headers


def _proxy(access: Access) -> str | None:
    """That of the kubeconfig; else that of the surroundings, as ``HTTPS_PROXY`` and ``NO_PROXY`` say."""
    if access.proxy:
        return access.proxy
    server = URL(access.server)
    if proxy_bypass(server.host or ""):
        return None
    return getproxies().get(server.scheme)


def _digest(path: str | None) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest() if path else b""


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file)
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
