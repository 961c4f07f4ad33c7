"""A fake API server with HTTP and TLS in its own thread, which can simulate failures."""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import kubernetes_messages as messages
import server_process
from aiohttp import web
from kube_objects import Objects, Refusal
from threaded_server import ThreadedServer, abort

GROUPS = {
    "": {"pods": "v1", "events": "v1", "podtemplates": "v1"},
    "kubeflow.org": {"pytorchjobs": "v1"},
    "authorization.k8s.io": {"selfsubjectaccessreviews": "v1"},
}


@dataclass
class Fault:
    """A failure of the next requests with this method and this text in the path."""

    method: str = "GET"
    path: str = ""
    times: int = 1
    watch: bool = False
    code: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    status: dict[str, Any] | None = None
    reset: str = ""  # Reset the connection ``before`` or ``after`` the request takes effect.
    hang: float = 0.0
    held: threading.Event | None = None  # The request waits until this event is set.
    truncate: bool = False
    first: Callable[[], None] | None = None  # Called before the response.

    def applies_to(self, request):
        is_meant = (request.method, "watch" in request.query) == (self.method, self.watch)
        return self.times > 0 and is_meant and self.path in request.path

    async def wait(self):
        await asyncio.sleep(self.hang)
        while self.held is not None and not self.held.is_set():
            await asyncio.sleep(0.01)


class KubeServer(ThreadedServer):
    """A fake API server. Public methods may be called from any thread."""

    def __init__(self, tls=None):
        super().__init__()
        self.objects = Objects()
        self.groups = {group: dict(plurals) for group, plurals in GROUPS.items()}
        self.tokens = None
        """The accepted bearer tokens, or other credentials with their scheme. None accepts all requests."""
        self.forbidden = set()  # Entries of the form ``verb plural``.
        self.requests = []
        self.bodies = []
        self.peers = []  # The names in client certificates.
        self.faults = []
        self.logs = {}  # The lines of successive responses for a log, by pod.
        self.protobuf = True  # Serve pods as protobuf to clients that accept it, as the real server does.
        self.muted = set()  # The plurals for which watches stay open and send no data.
        self._tls = tls
        self._port = 0
        self._changed = asyncio.Event()

    @property
    def url(self):
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self):
        """Start the server, on the same port as before."""
        self._port = self.listen(self._port, self._tls() if self._tls else None)

    def do(self, what):

        async def done():
            result = what(self.objects)
            self._wake()
            return result

        return self.run(done())

    def apply(self, place, manifest):
        """Create or replace an object, as a controller does; its default namespace is `ns`."""
        meta = manifest["metadata"]
        key = (*place, meta.get("namespace", "ns"), meta["name"])
        return self.do(lambda objects: objects.apply(key, manifest))

    def remove(self, place, name, namespace="ns"):
        self.do(lambda objects: objects.remove((*place, namespace, name)))

    def get_object(self, place, name, namespace="ns"):
        return self.do(lambda objects: objects.now[(*place, namespace, name)])

    def list_objects(self, plural):
        return [each for key, each in self.do(lambda objects: [*objects.now.items()]) if key[1] == plural]

    def _wake(self):
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- requests

    async def answer(self, request):
        what = "watch " if "watch" in request.query else ""
        self.requests.append(f"{request.method} {what}{request.path}")
        certificate = request.get_extra_info("peercert")
        if certificate:
            self.peers.append(certificate["subject"][0][0][1])
        try:
            fault = next((each for each in self.faults if each.applies_to(request)), None)
            if fault is not None:
                return await self._fault(fault, request)
            return await self._serve(request)
        except Refusal as refusal:
            return self._respond(request, "Status", refusal.status, refusal.code)

    async def _fault(self, fault, request):
        fault.times -= 1
        if fault.first is not None:
            fault.first()
        await fault.wait()
        if fault.reset == "before":
            abort(request)
            return web.Response()
        if fault.code and fault.body is None:
            return self._respond(request, "Status", fault.status or {}, fault.code, fault.headers)
        if fault.code:
            return web.Response(status=fault.code, headers=fault.headers, body=fault.body)
        if fault.watch:
            return await self._broken_watch(fault, request)
        done = await self._serve(request)
        if fault.reset == "after":
            abort(request)
        if fault.truncate:
            assert isinstance(done, web.Response)
            return web.Response(body=done.body[:-20], content_type=done.content_type)  # type: ignore[index]
        return done

    async def _broken_watch(self, fault, request):
        response = await _begun(request, fault.headers.get("Content-Type") or self._type(request))
        if fault.body is not None:
            await response.write(fault.body)
        if fault.status is not None:
            await response.write(self._change(request, "ERROR", "Status", fault.status))
        await response.write_eof()
        return response

    async def _serve(self, request):
        if self.tokens is not None:
            known = request.headers.get("Authorization", "")
            if (known[7:] if known.lower().startswith("bearer ") else known) not in self.tokens:
                raise Refusal(401, "Unauthorized", "Unauthorized")
        parts = request.path.strip("/").split("/")
        if parts[0] == "version":
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.1"})
        if parts[0] == "apis" and len(parts) <= 3:
            return self._discovery(*parts[1:])
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        version, rest = rest[0], rest[1:]
        namespace, rest = (rest[1], rest[2:]) if rest[0] == "namespaces" and rest[2:] else ("", rest)
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        if self.groups.get(group, {}).get(plural) != version:
            return web.Response(status=404, text="404 page not found\n")
        self._permit(request, "/".join((plural, *rest[2:])), (group, namespace), name)
        if rest[2:] == ["log"]:
            return await self._log(request, name, self.objects.get((group, plural, namespace, name)))
        if "watch" in request.query:
            return await self._watch(request, (group, plural, namespace))
        answer = await self._object(request, (group, plural, namespace, name))
        self._wake()
        kind = ("Pod" if name else "PodList") if plural == "pods" else ""
        return self._respond(request, kind, answer, 201 if request.method == "POST" else 200)

    def _type(self, request):
        """Return the media type of the response: the accepted one, if it is supported."""
        accepted = request.headers.get("Accept", "").partition(",")[0]
        has = self.protobuf and request.path.endswith("/pods")
        return messages.MEDIA_TYPE if has and accepted == messages.MEDIA_TYPE else "application/json"

    def _respond(self, request, kind, manifest, code=200, headers=None):
        media_type = self._type(request)
        is_json = media_type == "application/json"
        body = json.dumps(manifest).encode() if is_json else messages.wrapped(kind, manifest)
        return web.Response(body=body, status=code, headers=headers, content_type=media_type)

    def _change(self, request, how, kind, manifest):
        if self._type(request) == "application/json":
            return json.dumps({"type": how, "object": manifest}).encode() + b"\n"
        return messages.frame(how, kind, manifest)

    def _discovery(self, group="", version=""):
        """Return all API groups, one group, or the resources of a version of it."""
        if not group:
            groups = [self._group(each) for each in self.groups if each]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        if group not in self.groups:
            return web.Response(status=404, text="404 page not found\n")
        if not version:
            return web.json_response({"kind": "APIGroup", **self._group(group)})
        there = [plural for plural, served in self.groups[group].items() if served == version]
        resources = [{"name": each, "namespaced": True} for each in there]
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    def _group(self, group):
        versions = [{"version": version} for version in dict.fromkeys(self.groups[group].values())]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _permit(self, request, plural, where, name):
        verbs = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
        read = "watch" if "watch" in request.query else "get" if name else "list"
        verb = verbs.get(request.method, read)
        if f"{verb} {plural}" in self.forbidden:
            scope = f'in the namespace "{where[1]}"' if where[1] else "at the cluster scope"
            reason = f'User "us" cannot {verb} resource "{plural}" in API group "{where[0]}" {scope}'
            raise Refusal(403, "Forbidden", f"{plural} is forbidden: {reason}")

    async def _object(self, request, key):
        body = await request.json() if request.can_read_body else {}
        if request.method == "GET":
            if key[3]:
                return self.objects.get(key)
            return self.objects.page(key[:3], request.query)
        if key[1] == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            plural = "/".join(filter(None, (asked["resource"], asked["subresource"])))
            return {"status": {"allowed": f"{asked['verb']} {plural}" not in self.forbidden}}
        self.bodies.append(body)
        if request.method == "POST":
            return self.objects.create((*key[:3], body["metadata"]["name"]), body, request.query)
        if request.method == "PATCH":
            if request.headers["Content-Type"] != "application/merge-patch+json":
                raise Refusal(415, "UnsupportedMediaType", request.headers["Content-Type"])
            return self.objects.patch(key, body)
        return self.objects.delete(key, body)

    async def _watch(self, request, place):
        query = request.query
        since = int(query["resourceVersion"])
        if since > self.objects.version + 1_000:
            raise Refusal(504, "Timeout", "Too large resource version")
        self.objects.changes(place, query, since)  # Raises an error for an expired version.
        response = await _begun(request, self._type(request))
        loop = asyncio.get_running_loop()
        last = loop.time() + int(query["timeoutSeconds"])
        try:
            while (left := last - loop.time()) > 0:
                changed = self._changed
                if place[1] not in self.muted:
                    since = await self._changes(request, response, place, since)
                try:
                    await asyncio.wait_for(changed.wait(), left)
                except asyncio.TimeoutError:
                    break
        except Refusal as refusal:
            await response.write(self._change(request, "ERROR", "Status", refusal.status))
        await response.write_eof()
        return response

    async def _changes(self, request, response, place, since):
        # Changes during the write come after the bookmark.
        query, newest = request.query, self.objects.version
        for version, change in self.objects.changes(place, query, since):
            await response.write(self._change(request, change["type"], "Pod", change["object"]))
            since = version
        if since < newest and query.get("allowWatchBookmarks") == "true":
            since = newest
            mark = {"kind": "Pod", "metadata": {"resourceVersion": str(since), "creationTimestamp": None}}
            await response.write(self._change(request, "BOOKMARK", "Pod", mark))
        return since

    async def _log(self, request, pod, there):
        self.requests[-1] += f"?{request.query_string}"
        answers = self.logs.get(pod, [])
        if not there["spec"].get("nodeName", "node"):
            return web.Response(status=204)
        if not answers:
            raise Refusal(400, "BadRequest", f'container "pytorch" in pod "{pod}" is waiting to start')
        lines = answers.pop(0) if len(answers) > 1 else answers[0]
        response = await _begun(request)
        tail = int(request.query.get("tailLines", len(lines)))
        for line in lines[len(lines) - tail :]:
            if line == "<reset>":
                abort(request)
                return response
            await response.write(line.encode() + b"\n")
        await response.write_eof()
        return response


async def _begun(request, media_type="application/json"):
    watch = ";stream=watch" if media_type == messages.MEDIA_TYPE else ""
    response = web.StreamResponse(headers={"Content-Type": media_type + watch})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


@contextmanager
def served(tls=None):
    server = KubeServer(tls)
    server.start()
    try:
        yield server
    finally:
        server.close()


def kubeconfig(server, path, user=None, **cluster):
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server.url, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(content))
    return str(path)


@contextmanager
def serve(server, folder, flags=(), **env):
    """Run ``kfpytorch serve --cluster kubernetes`` with the fake API server."""
    folder.mkdir(exist_ok=True)
    config = kubeconfig(server, folder / "kubeconfig")
    cluster = ("--cluster", "kubernetes", "--kubeconfig", config, "--host", "127.0.0.1")
    with server_process.serve(folder, [*cluster, *flags], **env) as serving:
        yield serving
