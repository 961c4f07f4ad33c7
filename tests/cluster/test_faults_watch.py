"""Whatever breaks in following the API server: every job is known, and none that is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from rig.api import jobs
from rig.control_plane import BACKEND, ControlPlane
from rig.proxy import Asked, Fault, How, Proxy, status

from backend_plugin.core.observed import Job
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell.cluster import Name, Record

NAMESPACE = "faults-watch"
PAGE, SILENCE, WAIT = 2, 1.5, 30
GONE = status(410, "Expired", "too old resource version")
# Of a watch: as its answer, or in it.
OF_A_WATCH = {
    "410": GONE,
    "410 in it": Fault(
        code=200, body=b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
    ),
    "429": status(429, "TooManyRequests", Retry_After="1"),
    "500": status(500, "InternalError"),
    "a page": Fault(code=503, body=b"<h1>upstream connect error</h1>"),
    "half a line": Fault(code=200, body=b'{"type":"MODIFIED","object":{"metadata":{"na'),
    "401": status(401, "Unauthorized"),
    "403": status(403, "Forbidden", 'User "backend" cannot watch resource "pytorchjobs"'),
    "no connection": Fault(how=How.RESET_BEFORE),
    "silence": Fault(how=How.STALL),
}
OF_A_LIST = {
    **{name: OF_A_WATCH[name] for name in ("410", "429", "500", "a page", "401", "403", "no connection")},
    "half a list": Fault(how=How.CUT),
    "half as if whole": Fault(how=How.TRUNCATE),
}


class Heard:
    """The jobs that there are, as one who follows is told."""

    def __init__(self) -> None:
        self.there: set[str] | None = None

    def replace(self, kind: type[Record], records: Any) -> None:
        if kind is Job:
            self.there = {record.name for namespace, record in records if namespace == NAMESPACE}

    def put(self, namespace: str, record: Record) -> None:
        if isinstance(record, Job) and namespace == NAMESPACE:
            assert self.there is not None
            self.there.add(record.name)

    def drop(self, kind: type[Record], name: Name) -> None:
        if kind is Job and name.namespace == NAMESPACE:
            assert self.there is not None
            self.there.discard(name.name)


def followed(plane: ControlPlane, proxy: Proxy, check: Callable[[Heard], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        config = str(plane.kubeconfig(BACKEND, proxy.url))
        cluster = await KubernetesCluster.open(
            KubernetesOptions(kubeconfig=config, page=PAGE, silence=SILENCE)
        )
        heard = Heard()
        following = asyncio.create_task(cluster.follow(heard))
        try:
            await check(heard)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await cluster.close()

    asyncio.run(all_of_it())


async def until(true: Callable[[], bool], said: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT
    while not true():
        assert asyncio.get_running_loop().time() < deadline, said()
        await asyncio.sleep(0.02)


@pytest.fixture
def there(bare: ControlPlane) -> set[str]:
    """Jobs for three pages."""
    bare.namespace(NAMESPACE)
    bare.admin.ask("DELETE", jobs(NAMESPACE))
    names = {f"f{number}-n0-0-0123456789ab" for number in range(5)}
    for name in names:
        make(bare, name)
    return names


def make(plane: ControlPlane, name: str) -> None:
    container = {"name": "pytorch", "image": "image:1"}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    plane.admin.create(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {"kfpytorch.flyte.org/job": "0123456789ab"},
            },
            "spec": {"pytorchReplicaSpecs": {"Master": replica}},
        }
    )


def lists(asked: Asked) -> bool:
    return asked.path.endswith("/pytorchjobs") and not asked.is_watch


def watches(asked: Asked) -> bool:
    return asked.path.endswith("/pytorchjobs") and asked.is_watch


def continues(asked: Asked) -> bool:
    return lists(asked) and "continue" in asked.query


@pytest.mark.parametrize("wanted", [lists, continues])
@pytest.mark.parametrize("trouble", OF_A_LIST)
def test_a_list_that_breaks_is_told_when_it_is_whole(
    bare: ControlPlane, there: set[str], trouble: str, wanted: Callable[[Asked], bool]
) -> None:
    async def check(heard: Heard) -> None:
        await until(lambda: heard.there is not None, lambda: "nothing is told")
        assert heard.there == there

    with Proxy(bare) as proxy:
        proxy.befall(OF_A_LIST[trouble], wanted)
        followed(bare, proxy, check)
        assert proxy.all_befell


@pytest.mark.parametrize("trouble", OF_A_WATCH)
def test_after_a_watch_that_breaks_nothing_is_missed(
    bare: ControlPlane, there: set[str], trouble: str
) -> None:
    async def check(heard: Heard) -> None:
        await until(lambda: proxy.all_befell and heard.there is not None, lambda: "no watch was begun")
        bare.admin.delete(jobs(NAMESPACE, min(there)))
        make(bare, "fnew-n0-0-0123456789ab")
        after = there - {min(there)} | {"fnew-n0-0-0123456789ab"}
        await until(lambda: heard.there == after, lambda: heard.there)

    with Proxy(bare) as proxy:
        proxy.befall(OF_A_WATCH[trouble], watches)
        followed(bare, proxy, check)


def test_what_happens_while_all_connections_break_is_known(bare: ControlPlane, there: set[str]) -> None:
    async def check(heard: Heard) -> None:
        await until(lambda: heard.there == there, lambda: heard.there)
        proxy.choose = lambda _: Fault(how=How.RESET_BEFORE)
        proxy.cut()
        for name in there:
            bare.admin.delete(jobs(NAMESPACE, name))
        make(bare, "fnew-n0-0-0123456789ab")
        proxy.forget()
        await until(lambda: heard.there == {"fnew-n0-0-0123456789ab"}, lambda: heard.there)

    with Proxy(bare) as proxy:
        followed(bare, proxy, check)
