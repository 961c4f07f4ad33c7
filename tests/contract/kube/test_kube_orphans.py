"""Orphans: detection, protection of other jobs, and deletion by a server or a command."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone

import pytest
from click.testing import CliRunner
from kube_server import Fault, kubeconfig
from kube_world import JOBS, LONG_AGO, WORKFLOWS, build_name, metadata, names, opened, options, ours, workflow
from serving import wait_until

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core.dialects.table import read_job
from backend_plugin.shell.allowlist import Allowlist
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.orphan_finder import OrphanFinder
from backend_plugin.shell.orphans import OrphanCollector
from backend_plugin.shell.output_prefixes import OutputPrefixes

SOON = timedelta(seconds=0.1), timedelta(seconds=0.02)
GONE, LIVES = build_name("gone"), build_name("lives")


@pytest.fixture
def server(server):
    server.groups["flyte.lyft.com"] = {"flyteworkflows": "v1alpha1"}
    return server


@asynccontextmanager
async def orphanage(server, tmp_path, *namespaces, **settings):
    async with opened(options(server, tmp_path, request_timeout=1.0, **settings)) as cluster:
        yield OrphanFinder(
            cluster=cluster,
            allowed=Allowlist(prefixes=OutputPrefixes(["s3://*"]), namespaces=namespaces or ("*",)),
            now=lambda: datetime.now(timezone.utc),
        )


def lookups(server):
    return sum("flyteworkflows" in each for each in server.requests)


def scan_orphans(server, tmp_path, *namespaces, **settings):
    """Return the names of orphans, the reasons for unclear jobs, and the number of owned jobs."""

    async def scan():
        async with orphanage(server, tmp_path, *namespaces, **settings) as here:
            return await here.scan()

    scanned = asyncio.run(scan())
    return [each.job.name for each in scanned.orphans], [*scanned.unclear], len(scanned.owned)


def test_workflow_in_another_namespace_does_not_match_the_job(server, tmp_path):
    server.apply(JOBS, ours("gone"))
    server.apply(WORKFLOWS, workflow("gone", namespace="other"))
    assert scan_orphans(server, tmp_path) == ([GONE], [], 0)


def test_jobs_are_listed_in_pages_and_each_execution_is_looked_up_once(server, tmp_path):
    expected = [f"gone-n{number}-0-0123456789ab" for number in range(7)]
    for name in expected:
        manifest = ours("gone")
        server.apply(JOBS, {**manifest, "metadata": {**manifest["metadata"], "name": name}})
    assert scan_orphans(server, tmp_path, page=3) == (expected, [], 0)
    assert lookups(server) == 1


def test_job_in_a_namespace_that_is_not_served_causes_no_lookup(server, tmp_path):
    server.apply(JOBS, ours("f1", namespace="others"))
    assert scan_orphans(server, tmp_path, "ns") == ([], [], 0)
    assert lookups(server) == 0


FORBIDDEN = {"kind": "Status", "message": 'User "us" cannot get resource "x"'}
NO_NAMESPACE = {"kind": "Status", "code": 404, "details": {"kind": "namespaces", "name": "ns"}}
INCONCLUSIVE = {
    "forbidden": ({"code": 403, "status": FORBIDDEN}, "add to"),
    "no such kind": ({"code": 404, "body": b"404 page not found\n"}, "are in another cluster"),
    "of else": ({"code": 404, "status": NO_NAMESPACE}, "are in another cluster"),
    "a proxy": ({"code": 404, "body": b"<html>"}, "404 NotFound"),
    "an error": ({"code": 500}, "the API server"),
    "nothing": ({"code": 200, "body": b"{}"}, "another object"),
    "broken off": ({"truncate": True}, "not a JSON object"),
}


@pytest.mark.parametrize(("fault", "why"), INCONCLUSIVE.values(), ids=INCONCLUSIVE)
def test_inconclusive_workflow_response_makes_no_orphan(server, tmp_path, fault, why):
    server.apply(JOBS, ours("gone"))
    server.apply(WORKFLOWS, workflow("gone"))
    server.faults.append(Fault(path="flyteworkflows", times=100, **fault))
    orphans, (reason,), owned = scan_orphans(server, tmp_path)
    assert (orphans, owned) == ([], 0)
    assert why in reason


@pytest.mark.parametrize("fault", [{"code": 410}, {"truncate": True}, {"hang": 5.0}])
def test_incomplete_job_list_raises_an_error(server, tmp_path, fault):
    server.apply(JOBS, ours("gone"))
    server.faults.append(Fault(path="pytorchjobs", times=100, **fault))
    with pytest.raises(ClusterUnavailable):
        scan_orphans(server, tmp_path)


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}


@pytest.mark.parametrize(
    "change",
    [{"ownerReferences": [OWNER]}, {"uid": "another"}, {"labels": {"kfpytorch.flyte.org/job": "of-another"}}],
    ids=["owned meanwhile", "created again", "of another attempt"],
)
async def test_job_changed_since_the_scan_is_not_deleted(server, tmp_path, change):
    server.apply(JOBS, ours("gone"))
    async with orphanage(server, tmp_path) as here:
        (orphan,) = (await here.scan()).orphans
        server.apply(JOBS, ours("gone", **change))
        assert not await here.delete_orphan(orphan)
    assert names(server) == [GONE]


async def test_orphan_deletion_has_the_uid_of_the_job_as_precondition(server, tmp_path):
    server.apply(JOBS, ours("gone"))
    uid = metadata(server, GONE)["uid"]
    async with orphanage(server, tmp_path) as here:
        (orphan,) = (await here.scan()).orphans
        assert await here.delete_orphan(orphan)
        assert not await here.delete_orphan(orphan)
    assert names(server) == []
    (how,) = server.bodies
    assert (how["preconditions"], how["propagationPolicy"]) == ({"uid": uid}, "Background")


@asynccontextmanager
async def collecting(server, tmp_path, *asked):
    """Run the server's scans, and request the status of jobs until their end.

    Before Python 3.12 the end may take a second.
    """
    async with orphanage(server, tmp_path) as here:
        orphans = OrphanCollector(here, Metrics(), *SOON)
        life = asyncio.create_task(orphans.run())
        try:
            yield orphans
        finally:
            life.cancel()
            while not life.done():
                for each in asked:
                    orphans.mark_in_use(each)
                await asyncio.wait([life], timeout=0.02)


async def test_server_deletes_a_job_that_is_an_orphan_in_two_consecutive_scans(server, tmp_path, caplog):
    caplog.set_level("INFO")
    for execution in ("gone", "lives"):
        server.apply(JOBS, ours(execution))
    server.apply(WORKFLOWS, workflow("lives"))
    async with collecting(server, tmp_path):
        await wait_until(lambda: any(each.getMessage().startswith("deleted") for each in caplog.records))
    assert names(server) == [LIVES]
    assert lookups(server) == 3  # One request per scan, and one for the job whose owner the first scan set.
    (owner,) = metadata(server, LIVES)["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("FlyteWorkflow", "lives")
    records = {record.message.partition(":")[0]: record for record in caplog.records}
    assert (records["deleted"].execution, records["deleted"].job) == ("gone", GONE)


async def test_failed_scan_resets_the_count_of_consecutive_scans(server, tmp_path):
    server.apply(JOBS, ours("gone"))
    asked = []

    def fail_next():
        asked.append("")
        if len(asked) == 1:
            server.faults.append(Fault(path="/v1/pytorchjobs", code=400))

    server.faults.append(Fault(path="flyteworkflows", times=1, first=fail_next))
    async with collecting(server, tmp_path):
        await wait_until(lambda: names(server) == [])
    assert lookups(server) == 3


async def test_young_job_causes_no_workflow_lookup(server, tmp_path):
    now = datetime.now(timezone.utc)
    for execution, minutes in (("young", 20), ("older", 40)):
        made = (now - timedelta(minutes=minutes)).isoformat()
        server.apply(JOBS, ours(execution, creationTimestamp=made))
    async with collecting(server, tmp_path) as orphans:
        there = [read_job(each) for each in server.do(lambda objects: [*objects.now.values()])]
        await wait_until(lambda: [orphans.mark_in_use(each) for each in there] and lookups(server) > 0)
        before = len(server.requests)
        await wait_until(lambda: len(server.requests) > before + 3)
    assert {each.rpartition("/")[2] for each in server.requests if "flyteworkflows" in each} == {"older"}


async def test_requested_job_is_kept_while_its_mark_cannot_be_written(server, tmp_path):
    server.apply(JOBS, ours("gone"))
    server.forbidden.add("patch pytorchjobs")
    there = read_job(server.get_object(JOBS, GONE))
    async with collecting(server, tmp_path, there) as orphans:
        await wait_until(lambda: orphans.mark_in_use(there) is None and lookups(server) >= 20)
    assert names(server) == [GONE]


def gc(server, tmp_path, *flags):
    config = kubeconfig(server, tmp_path / "config")
    command = ["gc", "--kubeconfig", str(config), "--confirm-after", "100ms", *flags]
    environment = {"PATH": "", "HOME": str(tmp_path), "COLUMNS": "200"}
    return CliRunner().invoke(kfpytorch, command, env=environment)


def test_gc_lists_orphans_first_and_deletes_them_with_the_delete_option(server, tmp_path):
    for execution in ("gone", "lives"):
        server.apply(JOBS, ours(execution))
    server.apply(WORKFLOWS, workflow("lives"))
    shown = gc(server, tmp_path)
    assert shown.exit_code == 0, shown.stderr
    header, row = (line.split() for line in shown.stdout.splitlines())
    assert header == ["NAMESPACE", "NAME", "EXECUTION", "NODE", "ATTEMPT", "STATE", "AGE", "RESULT"]
    assert (row[:6], row[7]) == (["ns", GONE, "gone", "n0", "0", "-"], "orphan")
    assert (names(server), server.bodies) == ([GONE, LIVES], [])
    done = gc(server, tmp_path, "--delete", "-o", "json")
    (deleted,) = json.loads(done.stdout)
    assert (done.exit_code, deleted["name"], deleted["created"]) == (0, GONE, LONG_AGO)
    assert (deleted["result"], deleted["message"], names(server)) == ("deleted", None, [LIVES])
    again = gc(server, tmp_path, "--delete")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "there are no orphans\n")


def test_gc_selects_orphans_by_namespace_and_age(server, tmp_path):
    server.apply(JOBS, ours("gone", creationTimestamp=datetime.now(timezone.utc).isoformat()))
    assert gc(server, tmp_path).stdout == ""
    assert gc(server, tmp_path, "--older-than", "0", "-n", "other").stdout == ""
    assert GONE in gc(server, tmp_path, "--older-than", "0", "-n", "ns").stdout


def test_gc_prints_the_state_of_a_running_trainjob_although_it_has_no_condition(server, tmp_path):
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1"}
    status = {"jobsStatus": [{"name": "node", "ready": 1}]}
    train_job = {**ours("gone"), "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    server.apply(("trainer.kubeflow.org", "trainjobs"), {**train_job, "spec": {}, "status": status})
    assert gc(server, tmp_path).stdout.splitlines()[1].split()[5] == "Running"


def test_gc_reports_jobs_whose_state_cannot_be_determined(server, tmp_path):
    server.apply(JOBS, ours("gone"))
    server.forbidden.add("get flyteworkflows")
    done = gc(server, tmp_path, "--delete")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cannot determine if 1 jobs without an owner are orphans" in done.stderr
    assert "{apiGroups: [flyte.lyft.com], resources: [flyteworkflows], verbs: [get]}" in done.stderr
    server.stop()
    try:
        away = gc(server, tmp_path)
    finally:
        server.start()
    assert away.exit_code == 1
    assert away.stderr.startswith("Error: the API server ")
    assert names(server) == [GONE]
