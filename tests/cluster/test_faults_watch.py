"""Faults in lists and watches: the cache has every existing job and pod, and no deleted one."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from kubernetes_messages import frame, wrapped
from rig import process
from rig.api import jobs, pods
from rig.control_plane import BACKEND, ControlPlane
from rig.proxy import How, ProxiedRequest, Proxy, ProxyFault, status

from backend_plugin.core.observed import Job, Pod
from backend_plugin.kube import api_resources, json_decoder, protobuf_envelope
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.pod_decoder import PodDecoder
from backend_plugin.shell.cluster import ObjectName, Record

NAMESPACE = "faults-watch"
PAGE, SILENCE, WAIT = 2, 1.5, 30
GONE = status(410, "Expired", "too old resource version")
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired"}
PROTOBUF = {"Content-Type": f"{protobuf_envelope.MEDIA_TYPE};stream=watch"}
# Faults of a watch: in the response, or in its stream.
OF_A_WATCH = {
    "410": GONE,
    "410 in it": ProxyFault(code=200, body=json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n"),
    "429": status(429, "TooManyRequests", Retry_After="1"),
    "500": status(500, "InternalError"),
    "a page": ProxyFault(code=503, body=b"<h1>upstream connect error</h1>"),
    "half a line": ProxyFault(code=200, body=b'{"type":"MODIFIED","object":{"metadata":{"na'),
    "401": status(401, "Unauthorized"),
    "403": status(403, "Forbidden", 'User "backend" cannot watch resource "pytorchjobs"'),
    "no connection": ProxyFault(how=How.RESET_BEFORE),
    "silence": ProxyFault(how=How.STALL),
}
OF_A_LIST = {
    **{name: OF_A_WATCH[name] for name in ("410", "429", "500", "a page", "401", "403", "no connection")},
    "half a list": ProxyFault(how=How.CUT),
    "half as if whole": ProxyFault(how=How.TRUNCATE),
    "an object": ProxyFault(code=200, body=b"{}"),
    "success": ProxyFault(
        code=200, body=b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'
    ),
}
# Pods arrive in protobuf; errors may be in protobuf or JSON.
OF_A_WATCH_OF_PODS = {
    **{name: OF_A_WATCH[name] for name in ("410", "410 in it", "a page", "no connection", "silence")},
    "410 in protobuf": ProxyFault(code=200, headers=PROTOBUF, body=frame("ERROR", "Status", EXPIRED)),
    "half a frame": ProxyFault(code=200, headers=PROTOBUF, body=frame("ADDED", "Pod", {"metadata": {}})[:-2]),
}
OF_A_LIST_OF_PODS = {
    **{name: OF_A_LIST[name] for name in ("410", "a page", "no connection", "half a list")},
    **{name: OF_A_LIST[name] for name in ("half as if whole", "an object")},
    "an envelope": ProxyFault(code=200, body=wrapped("PodList", {})),
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A watched kind, and a manifest for it."""

    record: type[Record]
    path: Callable[..., str]
    """Return the API path of all objects in a namespace, or of one."""
    manifest: Mapping[str, Any]

    @property
    def plural(self) -> str:
        return self.path(NAMESPACE).rpartition("/")[2]

    def make(self, plane: ControlPlane, name: str) -> None:
        labels = {"kfpytorch.flyte.org/job": "0123456789ab"}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        plane.admin.create({**self.manifest, "metadata": metadata})

    def there(self, plane: ControlPlane) -> set[str]:
        """Create objects for three pages, delete all others, and return the names."""
        plane.namespace(NAMESPACE)
        plane.admin.request("DELETE", self.path(NAMESPACE))
        names = {f"f{number}-n0-0-0123456789ab" for number in range(5)}
        for name in names:
            self.make(plane, name)
        return names

    def lists(self, asked: ProxiedRequest) -> bool:
        return asked.path.endswith(f"/{self.plural}") and not asked.is_watch

    def continues(self, asked: ProxiedRequest) -> bool:
        return self.lists(asked) and "continue" in asked.query

    def watches(self, asked: ProxiedRequest) -> bool:
        return asked.path.endswith(f"/{self.plural}") and asked.is_watch


SPEC = {"containers": [{"name": "pytorch", "image": "image:1"}]}
JOBS = Kind(
    record=Job,
    path=jobs,
    manifest={
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": SPEC}}}},
    },
)
PODS = Kind(record=Pod, path=pods, manifest={"apiVersion": "v1", "kind": "Pod", "spec": SPEC})


class WatchedNames:
    """The existing objects of a kind, according to the callbacks of a watch."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind.record
        self.there: set[str] | None = None

    def replace_records(self, kind: type[Record], records: Any) -> None:
        if kind is self.kind:
            self.there = {record.name for namespace, record in records if namespace == NAMESPACE}

    def put_record(self, namespace: str, record: Record) -> None:
        if isinstance(record, self.kind) and namespace == NAMESPACE:
            assert self.there is not None
            self.there.add(record.name)

    def drop_record(self, kind: type[Record], name: ObjectName) -> None:
        if kind is self.kind and name.namespace == NAMESPACE:
            assert self.there is not None
            self.there.discard(name.name)


def followed(
    plane: ControlPlane, proxy: Proxy, kind: Kind, check: Callable[[WatchedNames], Awaitable[None]]
) -> None:
    async def all_of_it() -> None:
        config = str(plane.kubeconfig(BACKEND, proxy.url))
        cluster = await KubernetesCluster.open(
            KubernetesOptions(kubeconfig=config, page=PAGE, silence=SILENCE)
        )
        heard = WatchedNames(kind)
        following = asyncio.create_task(cluster.watch(heard))
        try:
            await check(heard)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await cluster.close()

    asyncio.run(all_of_it())


async def wait_until(true: Callable[[], bool], said: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT
    while not true():
        assert asyncio.get_running_loop().time() < deadline, said()
        await asyncio.sleep(0.02)


def rows(of_jobs: Mapping[str, ProxyFault], of_pods: Mapping[str, ProxyFault]) -> list[Any]:
    """Return a row for each fault of each kind."""
    return [
        pytest.param(kind, fault, id=f"{kind.plural} {name}")
        for kind, faults in ((JOBS, of_jobs), (PODS, of_pods))
        for name, fault in faults.items()
    ]


@pytest.mark.parametrize("page", ["first", "next"])
@pytest.mark.parametrize(("kind", "trouble"), rows(OF_A_LIST, OF_A_LIST_OF_PODS))
def test_a_list_that_breaks_is_told_when_it_is_whole(
    bare: ControlPlane, kind: Kind, trouble: ProxyFault, page: str
) -> None:
    there = kind.there(bare)

    async def check(heard: WatchedNames) -> None:
        await wait_until(lambda: heard.there is not None, lambda: "nothing is told")
        assert heard.there == there

    with Proxy(bare) as proxy:
        proxy.befall(trouble, kind.lists if page == "first" else kind.continues)
        followed(bare, proxy, kind, check)
        assert proxy.all_befell


@pytest.mark.parametrize(("kind", "trouble"), rows(OF_A_WATCH, OF_A_WATCH_OF_PODS))
def test_after_a_watch_that_breaks_nothing_is_missed(
    bare: ControlPlane, kind: Kind, trouble: ProxyFault
) -> None:
    there = kind.there(bare)

    async def check(heard: WatchedNames) -> None:
        await wait_until(lambda: proxy.all_befell and heard.there is not None, lambda: "no watch was begun")
        bare.admin.delete(kind.path(NAMESPACE, min(there)))
        kind.make(bare, "fnew-n0-0-0123456789ab")
        after = there - {min(there)} | {"fnew-n0-0-0123456789ab"}
        await wait_until(lambda: heard.there == after, lambda: heard.there)

    with Proxy(bare) as proxy:
        proxy.befall(trouble, kind.watches)
        followed(bare, proxy, kind, check)


@pytest.mark.parametrize("kind", [JOBS, PODS], ids=lambda kind: kind.plural)
def test_what_happens_while_all_connections_break_is_known(bare: ControlPlane, kind: Kind) -> None:
    there = kind.there(bare)

    async def check(heard: WatchedNames) -> None:
        await wait_until(lambda: heard.there == there, lambda: heard.there)
        proxy.choose = lambda _: ProxyFault(how=How.RESET_BEFORE)
        proxy.cut()
        for name in there:
            bare.admin.delete(kind.path(NAMESPACE, name))
        kind.make(bare, "fnew-n0-0-0123456789ab")
        proxy.forget()
        await wait_until(lambda: heard.there == {"fnew-n0-0-0123456789ab"}, lambda: heard.there)

    with Proxy(bare) as proxy:
        followed(bare, proxy, kind, check)


@pytest.mark.parametrize(
    ("kind", "accept"),
    [(JOBS, "application/json"), (PODS, "application/json"), (PODS, protobuf_envelope.ACCEPT)],
)
def test_a_list_of_nothing_is_one(bare: ControlPlane, kind: Kind, accept: str) -> None:
    """An empty list has a resource version in both formats, which distinguishes it from other responses."""
    path = kind.path(f"{NAMESPACE}-nothing")

    def request_with_accept() -> httpx.Response:
        return bare.admin.request("GET", path, headers={"Accept": accept})

    # Requests for a new kind fail for a short time.
    process.wait_until(lambda: request_with_accept().is_success, WAIT, lambda: request_with_accept().text)
    body = request_with_accept().content
    row = next(each for each in api_resources.KINDS if each.record is kind.record)
    in_json = json_decoder.JsonDecoder(row.wire, row.read)
    page = (PodDecoder() if protobuf_envelope.is_wrapped(body) else in_json).decode_page(body)
    assert ([*page.items], page.version.isdecimal(), page.rest) == ([], True, "")
    assert protobuf_envelope.is_wrapped(body) == (accept == protobuf_envelope.ACCEPT)
