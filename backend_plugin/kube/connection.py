"""HTTP connections to one API server, with current credentials and certificates."""

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from backend_plugin.kube.clock import Clock
from backend_plugin.kube.credentials import ClusterAccess, Credentials, CredentialsUnusable

log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 5.0
"""The time limit for a TCP connection and its TLS handshake."""
_RELOAD: Final = 60.0
"""The lifetime in seconds of loaded credentials. A kubelet renews a token minutes before it expires."""
_RENEW: Final = 5.0
"""The minimum time in seconds between two reloads after 401, because a reload may start an exec plugin."""
_READ_BUFFER: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """An API request, without credentials."""

    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    doubts: bool = True
    """True if a 403 is retried; False if the request is optional or the caller retries."""
    conflicts: bool = False
    """True if a 409 is not retried, because the request is for one version of the object."""
    is_background: bool = False
    """True for low priority: the request may wait, and uses the concurrency limit for background requests."""


class Connection:
    """A connection pool for one API server. Open and close it once, in one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self.clock: Final = Clock()
        self._credentials = credentials
        self._access = ClusterAccess(server="")
        self._tls: ssl.SSLContext | None = None
        self._certificates: object = None
        self._proxy: str | None = None
        self._loaded = self._renewed = float("-inf")
        self._loading: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Read the credentials. This sends no request to the cluster.

        Raises:
            CredentialsUnusable: If no credentials can be read.
        """
        await self._load_credentials()
        self._session = aiohttp.ClientSession(
            # The callers limit the number of requests; each watch has a connection of its own.
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            # `_find_proxy` reads the proxies of the environment; the passwords of a .netrc are not used.
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def open_response(
        self, request: ApiRequest, silence: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the response; `silence` limits the seconds between two pieces of its body.

        Raises:
            aiohttp.ClientError: If there is no response.
        """
        await self.refresh_credentials()
        session, access = self._require_session(), self._access
        async with session.request(
            request.method,
            # `server` may contain a path.
            URL(access.server + request.path, encoded=True).with_query(request.query),
            data=request.body,
            headers=_build_headers(request, access),
            ssl=self._tls or True,
            server_hostname=access.server_name,
            proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence),
            allow_redirects=False,
        ) as response:
            if response.ok:
                self.clock.update(response.headers.get("Date", ""))
            try:
                yield response
            finally:
                _abort_unfinished(response)

    def _require_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            raise aiohttp.ClientConnectionError("not connected")
        return self._session

    async def renew_credentials(self) -> None:
        """Reload the credentials after 401 and discard cached ones, at most every `_RENEW` seconds."""
        # A load in progress still uses what `forget` would discard.
        if self._loading is None and time.monotonic() - self._renewed > _RENEW:
            self._renewed = time.monotonic()
            self._credentials.forget()
            self._loaded = float("-inf")
        await self.refresh_credentials()

    async def refresh_credentials(self) -> None:
        """Reload the credentials if they are old.

        Concurrent callers share one reload, which continues when the timeout of a caller expires.
        """
        if self._loading is None and time.monotonic() - self._loaded > _RELOAD:
            self._loading = asyncio.create_task(self._reload_credentials())
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def _reload_credentials(self) -> None:
        """Reload the credentials; keep the current ones if that fails, such as while files are replaced."""
        try:
            await self._load_credentials()
        except CredentialsUnusable as unusable:
            self._loaded = time.monotonic()
            log.warning("keeping the current credentials: %s", unusable)
        finally:
            self._loading = None

    async def _load_credentials(self) -> None:
        access = await self._credentials.load()
        url = URL(access.server)
        if url.scheme not in ("http", "https") or not url.raw_host:
            raise CredentialsUnusable(
                f"{access.server!r} is not the URL of an API server; write https://HOST:PORT"
            )
        try:
            certificates = (
                access.verify,
                *map(_compute_digest, (access.ca_file, access.cert_file, access.key_file)),
            )
            if certificates != self._certificates:
                # aiohttp does not reuse a connection of another TLS context for new requests.
                self._tls, self._certificates = _build_tls_context(access), certificates
        except (OSError, ValueError) as error:
            raise CredentialsUnusable(
                f"certificates for {access.server}: {error}; see the kubeconfig"
            ) from error
        self._access, self._proxy, self._loaded = access, _find_proxy(access), time.monotonic()


def _abort_unfinished(response: aiohttp.ClientResponse) -> None:
    """Abort the connection of an unfinished response: a TLS shutdown would wait for the peer, up to 30 s."""
    connection = None if response.content.is_eof() else response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _build_headers(request: ApiRequest, access: ClusterAccess) -> Mapping[str, str]:
    headers = {
        "Accept": request.accept,
        # Within a cluster, decompression costs more than it saves.
        "Accept-Encoding": "identity",
        "User-Agent": "kfpytorch",
    }
    if access.authorization:
        headers["Authorization"] = access.authorization
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return headers


def _find_proxy(access: ClusterAccess) -> str | None:
    if access.proxy:
        return access.proxy
    server = URL(access.server)
    if proxy_bypass(server.host or ""):
        return None
    return getproxies().get(server.scheme)


def _compute_digest(path: str | None) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest() if path else b""


def _build_tls_context(access: ClusterAccess) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file)
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
