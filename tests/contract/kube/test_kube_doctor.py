"""The doctor on clusters with each kind of operator, and with missing permissions."""

import json
import re
import shlex

import pytest
import yaml
from builders import a_template
from click.testing import CliRunner
from kube_server import kubeconfig
from kube_world import collect_facts

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core.settings import read
from backend_plugin.doctor import run_checks, summary
from backend_plugin.doctor.access_review import RULES
from backend_plugin.doctor.check import Severity
from backend_plugin.doctor.checks import connector
from backend_plugin.doctor.facts import Facts, Subject

OPERATOR = {"kubeflow.org": {"pytorchjobs": "v1"}}
TRAINER = {
    "trainer.kubeflow.org": {"trainjobs": "v1alpha1", "trainingruntimes": "v1alpha1"},
    "jobset.x-k8s.io": {"jobsets": "v1alpha2"},
}
CHECKS = {"PyTorchJob": "operator-missing", "TrainJob": "trainer-missing"}


@pytest.fixture
def server(server):
    """A cluster without an operator."""
    del server.groups["kubeflow.org"]
    server.groups["apps"] = {"deployments": "v1"}
    server.groups[""] |= dict.fromkeys(("nodes", "namespaces", "resourcequotas", "limitranges"), "v1")
    return server


def deployment(name, ready):
    about = {"name": name, "namespace": "kubeflow"}
    return {"metadata": about, "spec": {}, "status": {"availableReplicas": ready}}


@pytest.mark.parametrize(
    ("cluster", "kind", "reason"),
    [
        ((OPERATOR, {}), "PyTorchJob", "the cluster supports no other kind"),
        ((OPERATOR, {"dialect": "trainjob"}), "TrainJob", "set by kfpytorch.dialect"),
        (
            (TRAINER, {"gang": {"scheduler": "kueue", "queue": "q"}}),
            "TrainJob",
            "the cluster has no pytorchjobs",
        ),
    ],
)
def test_checks_match_the_job_kind_that_the_connector_selects(server, tmp_path, cluster, kind, reason):
    groups, settings = cluster
    server.groups.update(groups)
    facts = collect_facts(server, tmp_path, settings=read({"kfpytorch": settings}))
    assert (facts.task.dialect.name, facts.task.job["kind"]) == (kind, kind)
    assert summary.build_lines(facts)["dialect"].startswith(f"The job is a {kind}: {reason}")
    found = {each.id for each in run_checks.list_findings(facts)} & {*CHECKS.values()}
    assert found == {CHECKS[kind]}
    roles = ["node"] if kind == "TrainJob" else ["master", "worker"]
    assert [each.name for each in facts.task.roles] == roles


def test_other_resources_of_the_api_group_do_not_count_as_jobs(server, tmp_path):
    server.groups.update({**TRAINER, "kubeflow.org": {"notebooks": "v1"}})
    assert collect_facts(server, tmp_path).task.dialect_reasons == (
        "The job is a TrainJob: the cluster has no pytorchjobs.kubeflow.org.",
    )
    server.groups["kubeflow.org"]["pytorchjobs"] = "v1"
    assert collect_facts(server, tmp_path).task.dialect.name == "PyTorchJob"


def test_train_job_and_runtime_are_created_in_dry_runs_only(server, tmp_path):
    server.groups.update(TRAINER)
    facts = collect_facts(server, tmp_path)
    (name,) = {each["metadata"]["name"] for each in facts.task.plan.prerequisites}
    made = [(each["kind"], each["metadata"]["name"]) for each in server.bodies if each["kind"] != "Pod"]
    assert made == [("TrainJob", name), ("TrainingRuntime", name), ("TrainJob", "kfpytorch-doctor")]
    assert facts.job_reply.stored["kind"] == "TrainJob"
    assert server.do(lambda objects: [key for key in objects.now if "trainer" in key[0]]) == []


def test_render_prints_manifests_as_the_cluster_would_store_them(server, tmp_path):
    server.groups.update(TRAINER)
    task = tmp_path / "task.pb"
    task.write_bytes(a_template({"workerReplicas": {"replicas": 1}}).SerializeToString())
    config = kubeconfig(server, tmp_path / "config")
    options = ("--dry-run=server", "--namespace", "ns", "--kubeconfig", config)
    done = CliRunner().invoke(kfpytorch, ["render", str(task), *options, "-o", "json"])
    assert done.exit_code == 0, done.output
    manifests = json.loads(done.stdout)
    assert [each["kind"] for each in manifests] == ["TrainingRuntime", "TrainJob"]
    # Fields that the API server sets are removed.
    assert all("uid" not in each["metadata"] for each in manifests)
    assert server.do(lambda objects: [key for key in objects.now if "trainer" in key[0]]) == []
    server.objects.quota = "exceeded quota: few"
    done = CliRunner().invoke(kfpytorch, ["render", str(task), *options])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("TrainingRuntime: ")
    assert "exceeded quota: few" in done.stderr


def test_mpi_task_is_planned_with_its_framework_and_its_nodes(server, tmp_path):
    server.groups.update(TRAINER)
    fields = {"workerReplicas": {"replicas": 1}, "kfpytorch": {"trainJob": {"framework": "mpi"}}}
    template = a_template({"masterReplicas": {"replicas": 1}, **fields})
    facts = collect_facts(server, tmp_path, template=template)
    assert facts.task.framework == "mpi"
    assert [(each.name, each.count) for each in facts.task.roles] == [("node", 2)]


def test_operator_without_an_available_pod_is_not_used(server, tmp_path):
    server.groups.update({**OPERATOR, **TRAINER})
    for name, ready in (("training-operator", 0), ("kubeflow-trainer-controller-manager", 1)):
        server.apply(("apps", "deployments"), deployment(name, ready))
    facts = collect_facts(server, tmp_path)
    assert facts.task.dialect_reasons == ("The job is a TrainJob: no pod of training-operator is available.",)


def test_queues_before_a_gang_scheduler_are_read(server, tmp_path):
    kueue = {"localqueues": "v1beta1", "clusterqueues": "v1beta1"}
    pod_groups = {"scheduling.x-k8s.io": {"podgroups": "v1alpha1"}}
    server.groups |= {**TRAINER, "kueue.x-k8s.io": kueue, **pod_groups}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "team", "namespace": "ns"}}
    server.apply(("kueue.x-k8s.io", "localqueues"), queue)
    gang = {"scheduler": "coscheduling", "pod-groups-by": "operator", "local-queue": "team"}
    facts = collect_facts(server, tmp_path, settings=read({"kfpytorch": {"gang": gang}}))
    assert [each["metadata"]["name"] for each in facts.get_objects(Subject.QUEUES)] == ["team"]
    assert "queue-missing" not in {each.id for each in run_checks.list_findings(facts)}


FORBIDDEN = {"list nodes", "list deployments", "list resourcequotas", "list limitranges", "get namespaces"}


def unseen(server, folder):
    server.groups.update(OPERATOR)
    facts = collect_facts(server, folder)
    return [each for each in run_checks.list_findings(facts) if each.id == run_checks.NOT_READABLE]


def read_manifests(remedy):
    """Return the manifests of a command as a shell passes them to kubectl."""
    words = shlex.split(remedy, comments=True)
    assert (words[0], words[2:]) == ("echo", ["|", "kubectl", "apply", "-f", "-"])
    assert not words[1].startswith("{"), "kubectl reads this as JSON"
    return yaml.safe_load(words[1])["items"]


def list_permitted(items):
    """Return what bound roles permit: verb and resource, by scope."""
    for role in items[::2]:
        where = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for verb in rule["verbs"]:
                yield from ((where, f"{verb} {plural}") for plural in rule["resources"])


def test_remedy_command_grants_the_account_each_forbidden_request(server, tmp_path):
    server.forbidden |= FORBIDDEN
    (found,) = unseen(server, tmp_path)
    assert found.level is Severity.UNKNOWN
    items = read_manifests(found.remedy)
    assert [each["kind"] for each in items] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    for role, binding in zip(items[::2], items[1::2], strict=True):
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["metadata"] == role["metadata"]
        assert [each["name"] for each in binding["subjects"]] == ["us"]
    permitted = set(list_permitted(items))
    assert {each for _, each in permitted} == FORBIDDEN
    assert ("ns", "list resourcequotas") in permitted
    assert ("", "list nodes") in permitted
    server.forbidden -= {each for _, each in permitted}
    assert unseen(server, tmp_path) == []


def test_remedy_command_contains_the_rules_of_all_kinds_and_namespaces_of_a_subject(server, tmp_path):
    server.groups.setdefault("trainer.kubeflow.org", {})["trainjobs"] = "v1alpha1"
    server.forbidden |= {"list pytorchjobs", "list trainjobs", "list podtemplates", "create pods"}
    (found,) = unseen(server, tmp_path)
    permitted = set(list_permitted(read_manifests(found.remedy)))
    assert permitted == {
        ("", "list pytorchjobs"),
        ("", "list trainjobs"),
        ("ns", "list podtemplates"),
        ("flyte", "list podtemplates"),
        ("ns", "create pods"),
    }
    assert f"(and {len(permitted)} more)" in found.sentence  # Two dry runs of pods are forbidden.


def test_missing_rules_of_a_connector_are_in_one_role():
    (check,) = (each for each in connector.CHECKS if each.id == "connector-rbac")
    (found,) = check.judge(Facts(namespace="ns", missing_permissions={"flyte/kfpytorch": RULES}))
    role, binding = read_manifests(found.remedy)
    wanted = {f"{verb} {rule.resource}" for rule in RULES for verb in rule.verbs}
    assert {each for _, each in list_permitted([role, binding])} == wanted
    assert binding["subjects"][0]["name"] == "system:serviceaccount:flyte:kfpytorch"
    assert re.fullmatch(r"[a-z0-9-]+", role["metadata"]["name"])


def test_rejected_token_is_not_reported_as_an_unreachable_server(server, tmp_path):
    server.tokens = {"another"}
    (found,) = run_checks.list_findings(collect_facts(server, tmp_path))
    assert found.sentence.startswith("the API server answers 401 ")
