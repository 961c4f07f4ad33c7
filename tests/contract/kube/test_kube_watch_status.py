"""Invalid lists are rejected, silent watches are stale, and new kinds are discovered immediately."""

import asyncio
import logging

import pytest
from kube_server import Fault
from kube_world import JOBS, NAME, PODS, following, job, opened, options, pod
from kubernetes_messages import wrapped
from serving import wait_until

from backend_plugin.core.observed import Job, Pod

REPLICA = f"{NAME}-master-0"


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        # The envelope contains the type of the object only.
        (Pod, Fault(path="/pods", code=200, body=wrapped("PodList", {}).removesuffix(b"\x12\0"))),
        (Job, Fault(path="/pytorchjobs", code=200, body=b"{}")),
    ],
    ids=["pods", "jobs"],
)
async def test_invalid_list_is_requested_again_and_known_records_are_kept(
    server, tmp_path, caplog, kind, fault
):
    server.apply(JOBS, job())
    server.apply(PODS, pod())
    server.faults.append(fault)
    async with opened(options(server, tmp_path)) as cluster, following(cluster) as heard:
        assert fault.times == 0
        assert (heard.names(), heard.names(Pod)) == ([NAME], [REPLICA])
        assert heard.replaced.count(kind.__name__) == 1
        fault.times = 1
        server.do(lambda objects: objects.compact())
        server.cut()
        await wait_until(lambda: heard.replaced.count(kind.__name__) == 2)
        assert fault.times == 0
        assert (heard.names(), heard.names(Pod)) == ([NAME], [REPLICA])
    # Once at the start and once at the relist.
    assert caplog.text.count("cannot watch ") == 2


async def test_watch_is_stale_after_two_silent_periods_until_it_receives_data(server, tmp_path, caplog):
    """A proxy may buffer the watch. A list then delivers the changes."""
    caplog.set_level(logging.INFO)
    server.muted = {"pods", "pytorchjobs", "events"}
    server.apply(JOBS, job())
    server.apply(PODS, pod())
    begun = []

    def count_lines(text):
        return sum(text in record.message for record in caplog.records)

    async with opened(options(server, tmp_path, silence=1.0)) as cluster:
        counts = cluster.watch_status.count_watches
        cluster.watch_status.trouble = lambda word: begun.append(
            (word, sum(asked.startswith("GET watch") for asked in server.asked))
        )
        async with following(cluster) as heard:
            server.apply(PODS, pod(phase="Running"))
            await wait_until(lambda: counts().get(("pods", "stale")) == 1)
            # Watches of jobs, pods and three kinds of events, and one repeated watch.
            assert begun[0] >= ("StreamStalled", 6)
            assert heard.there["Pod"]["ns", REPLICA].phase == "Pending"
            await wait_until(lambda: heard.there["Pod"]["ns", REPLICA].phase == "Running")
            await asyncio.sleep(0.1)
            assert counts()["pods", "stale"] == 1
            assert counts()["events about a Pod", "synced"] == 1
            server.muted.clear()
            server.apply(PODS, pod(phase="Succeeded"))
            await wait_until(lambda: counts().get(("pods", "synced")) == 1)
            assert (count_lines("cannot watch pods"), count_lines("watching pods again")) == (1, 1)
            assert count_lines("cannot watch events about a Pod") == 0


async def test_first_job_of_an_api_that_is_added_later_is_observed_immediately(server, tmp_path):
    kinds = server.groups.pop("kubeflow.org")
    settings = options(server, tmp_path, refused_pause=600.0, namespaces=("ns", "other"))
    async with opened(settings) as cluster, following(cluster) as heard:
        assert cluster.watch_status.count_watches()["pytorchjobs.kubeflow.org", "not_served"] == 2
        server.groups["kubeflow.org"] = kinds
        await cluster.create(job())
        await wait_until(lambda: heard.names() == [NAME])


async def test_creation_of_another_kind_does_not_trigger_discovery(server, tmp_path):
    kinds = server.groups.pop("kubeflow.org")
    async with opened(options(server, tmp_path, refused_pause=600.0)) as cluster, following(cluster):
        server.groups["kubeflow.org"] = kinds
        await cluster.create({**pod(), "apiVersion": "v1", "kind": "Pod"})
        await asyncio.sleep(0.2)
        assert cluster.watch_status.count_watches()["pytorchjobs.kubeflow.org", "not_served"] == 1
