"""Tests that a new scheduler needs only a module and a registry entry; this file is the module."""

from typing import Final

import chart_rules
import pytest
import yaml
from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling import adapter, companions, registry
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.doctor import access_review, queries
from backend_plugin.doctor.checks import gang, queues
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.kube import api_resources

API: Final = "seventh.example.org"


def marks(gang):
    return adapter.SchedulingFields(scheduler_name=gang.scheduler_name, pod_labels={f"{API}/crew": gang.name})


def crew(gang):
    return {"size": gang.min_member, "queue": gang.queue}


def detect(found, _):
    detection = adapter.Detection(rank=adapter.DetectionRank.API, why=f"the cluster has {API}")
    return detection if found.has_api(API) else None


ADAPTERS: Final = {
    "": adapter.SchedulerAdapter(
        marks=marks,
        title="Seventh",
        program="seventh-scheduler",
        groups=adapter.SchedulerResource(group=API, plural="crews", kind="Crew"),
        queues=adapter.SchedulerResource(
            group=API,
            plural="lanes",
            kind="Lane",
            example="{apiVersion: seventh.example.org/v1, kind: Lane, metadata: {name: NAME}}",
        ),
        companion=adapter.Companion(api_version=f"{API}/v1", kind="Crew", spec=crew),
        scheduler_name="seventh",
        understands=frozenset({adapter.QUEUE, adapter.MIN_MEMBER}),
        keys=(f"{API}/",),
        detect=detect,
    )
}

CUSTOM: Final = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 4}}


@pytest.fixture(autouse=True)
def _row(monkeypatch):
    monkeypatch.setitem(registry.ADAPTERS, "seventh", ADAPTERS)


def planned(ganging, found=None, **options):
    section = settings.read({"kfpytorch": {"gang": ganging}})
    template = a_template({**CUSTOM, "kfpytorch": {"gang": options}})
    return plan(template, a_run(), section, (), found or Capabilities())


def test_new_scheduler_is_used_from_the_settings_to_the_plan():
    job, group = planned({"scheduler": "seventh", "queue": "all"}, minMember=3).manifests
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["schedulerName"] == "seventh"
        assert replica["template"]["metadata"]["labels"][f"{API}/crew"] == job["metadata"]["name"]
    assert (group["apiVersion"], group["kind"]) == (f"{API}/v1", "Crew")
    assert group["spec"] == {"size": 3, "queue": "all"}
    assert list(companions.read_companions(read_job(job))) == [group]


def test_new_scheduler_is_detected_selected_and_combined_with_kueue():
    found = Capabilities(apis={API: ("v1",), "kueue.x-k8s.io": ("v1beta1",)}, queues={"kueue": ("default",)})
    made = planned({"scheduler": "auto"}, found)
    assert made.reasons[0] == f"Gangs are for seventh: the cluster has {API}."
    assert made.manifests[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert planned({"scheduler": "auto"}, found, scheduler="seventh").manifests == made.manifests


def test_connector_watches_the_pod_groups_of_the_new_scheduler_and_needs_permissions_for_them():
    kinds = [(each.resource.group, each.resource.plural) for each in api_resources.list_group_kinds()]
    assert (API, "crews") in kinds
    facts = Facts(namespace="ns", gang=GangSettings(scheduler="seventh"))
    rules = {each.resource: each.verbs for each in access_review.required(facts)}
    assert rules["crews"] == ("create", "list", "watch", "delete")


def test_chart_has_rules_for_pod_groups_and_queues_of_the_new_scheduler():
    parts = yaml.safe_load(chart_rules.build_file())

    def build_rule(plural, *verbs):
        return {"apiGroups": [API], "resources": [plural], "verbs": [*verbs]}

    assert build_rule("crews", "list", "watch") in parts["server"]
    assert build_rule("lanes", "list") in parts["gangsEverywhere"]
    assert build_rule("lanes", "list") in parts["doctor"]
    assert parts["groups"]["seventh"] == build_rule("crews", "create", "delete")


def test_doctor_finds_deployment_api_and_queues_of_the_new_scheduler():
    (query,) = queries.build_gang_queries("seventh", "ns")
    assert (query.subject, query.resource.plural) == (Subject.QUEUES, "lanes")
    pod = {"spec": {"containers": [{"image": "example.org/seventh-scheduler:1"}]}}
    deployment = {"spec": {"template": pod}, "status": {"availableReplicas": 1}}
    lane = {"apiVersion": f"{API}/v1", "metadata": {"name": "fast"}}
    facts = Facts(
        namespace="ns",
        gang=GangSettings(scheduler="seventh", queue="slow"),
        objects={Subject.DEPLOYMENTS: [deployment], Subject.QUEUES: [lane]},
    )
    assert gang.get_served_schedulers(facts) == {"default-scheduler": True, "seventh": True}
    checks = {each.id: each for each in (*gang.CHECKS, *queues.CHECKS)}
    (missing,) = checks["gang-crd-missing"].judge(facts)
    assert API in missing.sentence
    (queue,) = checks["queue-missing"].judge(facts)
    assert queue.sentence == "seventh has no queue slow; its queues: fast"
    assert "kind: Lane, metadata: {name: slow}" in queue.remedy
