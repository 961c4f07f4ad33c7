"""Deletions that the cluster has accepted but not completed."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from scripted_cluster import ScriptedCluster, ago
from serving import NAMESPACE, Served, name_of, serving
from tiny_service import code_of, wait_until

from backend_plugin.shell import job_deleter
from backend_plugin.shell.cluster import NotDurable, ObjectName

WORD = "deleted 0.3 s ago, but still present; its finalizers: example.com/audit, example.com/bill"


class Keeping(ScriptedCluster):
    """A cluster in which every job has finalizers until `let_go` is called."""

    async def delete(self, name: ObjectName, *, awaited: bool = False) -> None:
        await self._record_call("delete")
        if (stored := self._find("PyTorchJob", name)) is not None:
            keeps = {"finalizers": ["example.com/audit", "example.com/bill"], "deletionTimestamp": ago(0)}
            self.apply({**stored, "metadata": {**stored["metadata"], **keeps}})

    def let_go(self, name: str) -> None:
        self.remove("PyTorchJob", NAMESPACE, name)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delay before a remaining job is reported, and the time of a DeleteTask call."""
    monkeypatch.setattr(job_deleter, "LEAVING", (0.1, 0.2))
    monkeypatch.setattr(job_deleter, "DELETE_CALL", 0.1)


def list_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno >= logging.WARNING]


def is_ended(served: Served) -> Callable[[], bool]:
    return lambda: len(served.orders) == 0


async def test_deletion_blocked_by_finalizers_is_logged_once_and_ends_with_the_job(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(job_deleter, "DELETE_CALL", 50.0)  # A call that waits for the finalizers is slow.
    cluster = Keeping()
    async with serving(tmp_path, cluster, seconds=1) as served:
        loop = asyncio.get_running_loop()
        meta = await served.create()
        cluster.calls.clear()
        begun = loop.time()
        await served.delete(meta)
        assert loop.time() - begun < 40
        await wait_until(lambda: WORD in list_messages(caplog))
        await asyncio.sleep(1.5)
        assert (cluster.calls, list_messages(caplog)) == (["get", "delete", "get"], [WORD])
        assert served.orders.count_running("await_removal") == 1
        cluster.let_go(name_of(meta))
        await wait_until(is_ended(served))
        assert len(cluster.calls) == 3


async def test_recreated_job_is_not_deleted_by_the_earlier_deletion(tmp_path, caplog):
    cluster = Keeping()
    async with serving(tmp_path, cluster, seconds=1) as served:
        meta = await served.create()
        await served.delete(meta)
        cluster.let_go(name_of(meta))
        again = await served.create()
        assert name_of(again) == name_of(meta)
        cluster.calls.clear()
        await wait_until(is_ended(served))
        assert cluster.calls == []
        assert [key[2] for key in cluster.objects] == [name_of(again)]
        assert list_messages(caplog) == []


@pytest.mark.parametrize(("deaf", "asked"), [(False, ["get", "delete"]), (True, ["get", "delete", "get"])])
async def test_deletion_is_confirmed_by_a_request_only_without_a_watch_event(tmp_path, caplog, deaf, asked):
    async with serving(tmp_path, seconds=1) as served:
        meta = await served.create()
        served.cluster.calls.clear()
        served.cluster.deaf = deaf
        await served.delete(meta)
        await wait_until(is_ended(served))
        assert (served.cluster.calls, list_messages(caplog)) == (asked, [])


class Full(ScriptedCluster):
    """A cluster whose disk is full while `is_full`: a restart forgets what it cannot write."""

    is_full = True

    async def delete(self, name: ObjectName, *, awaited: bool = False) -> None:
        if self.is_full:
            self.calls.append("delete")
            raise NotDurable("the cluster's state cannot be written: database or disk is full")
        await super().delete(name, awaited=awaited)


async def test_deletion_that_a_restart_would_lose_is_not_acknowledged(tmp_path: Path) -> None:
    cluster = Full()
    async with serving(tmp_path, cluster, seconds=1) as served:
        meta = await served.create()
        for _ in "twice":  # Flyte calls again, but there is only one background operation.
            code, details = await code_of(served.delete(meta))
            assert (code, "disk is full" in details) == (grpc.StatusCode.UNAVAILABLE, True)
        assert served.orders.count_running("delete_job") == 1
        cluster.is_full = False
        await wait_until(lambda: not cluster.objects)
        await served.delete(meta)
