"""The detected capabilities of a cluster with various permissions, and their use by a server."""

import asyncio
import logging

import pytest
from kube_server import Fault
from kube_world import EVENTS, connected, opened, options
from serving import NAMESPACE, wait_until

from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.settings import read
from backend_plugin.kube import capability_facts
from backend_plugin.shell import capabilities_cache as remembering
from backend_plugin.shell.capabilities_cache import CapabilitiesCache
from backend_plugin.shell.cluster import ClusterUnavailable

AUTO = {"kfpytorch": {"gang": {"scheduler": "auto"}}}
LOCAL_QUEUES = ("kueue.x-k8s.io", "localqueues")
COSCHEDULING = {"scheduling.x-k8s.io": {"podgroups": "v1alpha1"}}


@pytest.fixture
def server(server):
    server.groups["apps"] = {"deployments": "v1"}
    server.groups[""] = {**server.groups[""], "limitranges": "v1"}
    return server


def operator(server, *args, **fields):
    about = {"name": "training-operator", "namespace": "kubeflow", **fields}
    spec = {"template": {"spec": {"containers": [{"name": "operator", "args": args}]}}}
    server.apply(("apps", "deployments"), {"metadata": about, "spec": spec})


def collect_capabilities(server, folder, namespace=NAMESPACE, **settings):
    async def collect():
        async with opened(options(server, folder, **settings)) as cluster:
            return await cluster.discovery.fetch_capabilities(namespace, read(AUTO).kfpytorch)

    return asyncio.run(collect())


def test_empty_cluster_has_version_apis_and_admission_scheduler(server, tmp_path):
    found = collect_capabilities(server, tmp_path)
    assert found == Capabilities(
        kubernetes="1.36.1",
        apis=dict.fromkeys(("kubeflow.org", "authorization.k8s.io", "apps"), ("v1",)),
        admission_scheduler="default-scheduler",
        unknown={"operator_scheduler": "there is no Deployment training-operator"},
    )
    assert not server.objects.now  # The dry runs have created nothing.


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], ""),
        (["--gang-scheduler-name=volcano"], "volcano"),
        (["gang-scheduler-name=none"], ""),
        (["--gang-scheduler-name=$(GANG)"], None),
        (["sh", "-c", "exec /manager --gang-scheduler-name=volcano"], None),
    ],
)
def test_operator_scheduler_is_the_value_of_its_flag(args, expected):
    containers = [{"command": ["/manager"], "args": ["--zap-log-level=2", *args]}]
    deployment = {"spec": {"template": {"spec": {"containers": containers}}}}
    assert capability_facts.find_flag_scheduler(deployment) == expected


def test_operator_with_another_name_is_found_by_its_label(server, tmp_path):
    label = {"control-plane": "kubeflow-training-operator"}
    operator(server, "--gang-scheduler-name=volcano", name="theirs", labels=label)
    assert collect_capabilities(server, tmp_path).operator_scheduler == "volcano"
    operator(server, name="another", labels=label)
    found = collect_capabilities(server, tmp_path)
    assert found.operator_scheduler is None
    assert "do not contain one value of --gang-scheduler-name" in found.unknown["operator_scheduler"]


def test_queues_webhooks_and_pod_binders_are_detected(server, tmp_path):
    server.groups["kueue.x-k8s.io"] = {"localqueues": "v1beta1"}
    server.groups["scheduling.volcano.sh"] = {"queues": "v1beta1"}
    server.groups["scheduling.run.ai"] = {"queues": "v2"}
    for name, namespace in (("mine", NAMESPACE), ("theirs", "other")):
        server.apply(LOCAL_QUEUES, {"metadata": {"name": name, "namespace": namespace}})
    for name, state in (("open", "Open"), ("shut", "Closed")):
        queue = {"metadata": {"name": name}, "status": {"state": state}}
        server.apply(("scheduling.volcano.sh", "queues"), queue)
    for number, by in enumerate(({"source": {"component": "a"}}, {"reportingComponent": "b"}, {})):
        about = {"name": f"e{number}", "namespace": "other"}
        server.apply(EVENTS, {"metadata": about, "reason": "Scheduled", **by})
    server.objects.admission_scheduler, server.objects.manages_jobs = "yunikorn", True
    found = collect_capabilities(server, tmp_path)
    assert found.queues == {"kueue": ("mine",), "volcano": ("open",), "kai": ()}
    assert found.schedulers == ("a", "b")
    assert (found.admission_scheduler, found.suspends_jobs) == ("yunikorn", True)
    server.objects.manages_jobs = False
    assert collect_capabilities(server, tmp_path).suspends_jobs is False
    # The names are not reported if there are too many.
    page = b'{"metadata": {"continue": "x"}, "items": []}'
    server.faults.append(Fault(path="localqueues", code=200, body=page))
    assert "there are more than" in collect_capabilities(server, tmp_path).unknown["kueue"]


def test_default_container_resources_of_limit_ranges_are_detected(server, tmp_path):
    limits = [
        {"type": "Pod", "max": {"cpu": "9"}},
        {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "1"}},
        {"type": "Container", "default": {"a.b/c": "x", "d.e/f": "1e99", "g.h/i": None}},
    ]
    more = [{"type": "Container", "defaultRequest": {"cpu": "3", "ephemeral-storage": "1Gi"}}]
    for name, namespace, ranges in (("a", NAMESPACE, limits), ("b", NAMESPACE, more), ("c", "other", more)):
        about = {"name": name, "namespace": namespace}
        server.apply(("", "limitranges"), {"metadata": about, "spec": {"limits": ranges}})
    found = collect_capabilities(server, tmp_path)
    assert found.container_defaults == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}


def test_forbidden_capability_is_unknown_with_the_missing_rule(server, tmp_path, caplog):
    server.groups["kueue.x-k8s.io"] = {"localqueues": "v1beta1"}
    rules = {
        "operator_scheduler": ("apps", "deployments", "list"),
        "admission_scheduler": ('""', "pods", "create"),
        "suspends_jobs": ("kubeflow.org", "pytorchjobs", "create"),
        "kueue": ("kueue.x-k8s.io", "localqueues", "list"),
        "schedulers": ('""', "events", "list"),
        "container_defaults": ('""', "limitranges", "list"),
    }
    server.forbidden = {f"{verb} {plural}" for _, plural, verb in rules.values()}
    found = collect_capabilities(server, tmp_path)
    assert (found.kubernetes, found.unknown.keys()) == ("1.36.1", rules.keys())
    for name, (group, plural, verb) in rules.items():
        rule = f"{{apiGroups: [{group}], resources: [{plural}], verbs: [{verb}]}}"
        assert found.unknown[name].endswith(f"add to the ClusterRole: {rule}"), found.unknown[name]
    one = collect_capabilities(server, tmp_path, namespaces=(NAMESPACE,))
    assert f"add to a Role in namespace {NAMESPACE}: " in one.unknown["kueue"]


def test_rejected_dry_run_makes_the_admission_scheduler_unknown_with_the_reason(server, tmp_path):
    server.objects.quota = "exceeded quota: all"
    assert "exceeded quota: all" in collect_capabilities(server, tmp_path).unknown["admission_scheduler"]
    with pytest.raises(ClusterUnavailable, match="is not a valid namespace name"):
        collect_capabilities(server, tmp_path, "no name")


async def test_job_gets_the_detected_scheduler_and_the_reason_is_logged_once(server, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    server.groups |= COSCHEDULING
    operator(server)
    async with connected(server, tmp_path, AUTO, detects=True) as here:
        await here.create(workers=4)
        await here.create(workers=4, execution="f2")
    assert len(server.list_objects("podgroups")) == 2
    messages = [each.message for each in caplog.records if each.message.startswith("gangs of")]
    assert messages == [
        f"gangs of flytesnacks/development in namespace {NAMESPACE}: Gangs are for coscheduling (backend): "
        "the cluster has scheduling.x-k8s.io, and the operator creates no pod groups."
    ]
    # The second task has not repeated the detection.
    assert server.requests.count(f"POST /api/v1/namespaces/{NAMESPACE}/pods") == 1


@pytest.mark.parametrize("is_created", [True, False], ids=["created", "capabilities unknown"])
async def test_refused_queue_is_accepted_if_created_or_not_checked(server, tmp_path, monkeypatch, is_created):
    monkeypatch.setattr(remembering, "MAX_AGE_SECONDS", 0.0)
    server.groups["kueue.x-k8s.io"] = {"localqueues": "v1beta1"}
    server.objects.manages_jobs = True
    # Without this dialect, the kind of the job depends on the capabilities.
    platform = {"kfpytorch": {"dialect": "pytorchjob", "gang": {"scheduler": "kueue", "queue": "late"}}}
    queue = {"metadata": {"name": "late", "namespace": NAMESPACE}}
    async with connected(server, tmp_path, platform, detects=True) as here:
        refused = await here.get(await here.create())
        assert "is not a queue of kueue for this namespace" in refused.message
        assert server.list_objects("pytorchjobs") == []
        if is_created:
            server.apply(LOCAL_QUEUES, queue)
        else:
            server.faults.append(Fault(path="/version", times=1_000, code=503))
        await here.create(execution="f2")
    (job,) = server.list_objects("pytorchjobs")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "late"


async def test_full_quota_does_not_change_the_scheduler_of_a_namespace(server, tmp_path, monkeypatch):
    monkeypatch.setattr(remembering, "MAX_AGE_SECONDS", 0.0)
    server.objects.admission_scheduler = "yunikorn"
    async with opened(options(server, tmp_path)) as cluster:
        found = CapabilitiesCache(cluster.discovery, read(AUTO).kfpytorch)
        await found.get_capabilities(NAMESPACE)
        server.objects.quota = "exceeded quota: all"
        assert (await found.refresh(NAMESPACE)).admission_scheduler == "yunikorn"


async def test_pod_dry_run_is_not_sent_if_the_scheduler_is_set(server, cluster):
    platform = {"kfpytorch": {"gang": {"scheduler": "yunikorn"}}}
    await CapabilitiesCache(cluster.discovery, read(platform).kfpytorch).get_capabilities(NAMESPACE)
    assert f"POST /api/v1/namespaces/{NAMESPACE}/pods" not in server.requests
    assert "GET /version" in server.requests


@pytest.mark.parametrize("detects", [True, False])
async def test_deployments_are_listed_only_to_detect_the_kind_of_jobs(server, cluster, caplog, detects):
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1"}
    server.forbidden.add("list deployments")
    platform = read({"kfpytorch": {"dialect": "auto" if detects else "trainjob"}}).kfpytorch
    await CapabilitiesCache(cluster.discovery, platform).get_capabilities(NAMESPACE)
    assert ("a permission is missing" in caplog.text) is detects


async def test_capabilities_are_collected_at_startup_and_periodically(server, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(remembering, "REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(remembering, "_MAX_IDLE_REFRESHES", 1)
    async with opened(options(server, tmp_path)) as cluster:
        found = CapabilitiesCache(cluster.discovery, read(AUTO).kfpytorch, (NAMESPACE,))
        life = asyncio.create_task(found.run())
        await wait_until(lambda: "no Deployment" in caplog.text)
        assert (await found.get_capabilities("ns")).operator_scheduler is None
        operator(server, "--gang-scheduler-name=volcano")
        await wait_until(lambda: '"operator-scheduler":"volcano"' in caplog.text)
        assert (await found.get_capabilities(NAMESPACE)).operator_scheduler == "volcano"
        # No task uses the other namespace any more.
        await wait_until(lambda: set(found._entries) == {NAMESPACE})
        server.stop()
        await wait_until(lambda: "are unknown; retrying" in caplog.text)
        life.cancel()
        await asyncio.wait([life])
        server.start()
    start = f"gang capabilities in namespace {NAMESPACE}"
    assert sum(each.message.startswith(start) for each in caplog.records) == 2
