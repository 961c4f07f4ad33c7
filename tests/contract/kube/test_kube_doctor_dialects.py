"""The doctor on clusters with the training-operator, with Kubeflow Trainer, and with both."""

import json

import pytest
from builders import a_template
from click.testing import CliRunner
from kube_server import kubeconfig
from kube_world import collect_facts

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.core.settings import read
from backend_plugin.doctor import run_checks, summary
from backend_plugin.doctor.facts import Subject

OPERATOR = {"kubeflow.org": {"pytorchjobs": "v1"}}
TRAINER = {
    "trainer.kubeflow.org": {"trainjobs": "v1alpha1", "trainingruntimes": "v1alpha1"},
    "jobset.x-k8s.io": {"jobsets": "v1alpha2"},
}
BOTH = {**OPERATOR, **TRAINER}
CHECKS = {"PyTorchJob": "operator-missing", "TrainJob": "trainer-missing"}


@pytest.fixture
def server(server):
    del server.groups["kubeflow.org"]
    server.groups.setdefault("apps", {})["deployments"] = "v1"
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
    server.do(lambda objects: setattr(objects, "quota", "exceeded quota: few"))
    done = CliRunner().invoke(kfpytorch, ["render", str(task), *options])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("TrainingRuntime: ")
    assert "  is refused by the cluster (Forbidden): " in done.stderr
    assert "exceeded quota: few; write kfpytorch doctor" in done.stderr


def test_mpi_task_is_planned_with_its_framework_and_its_nodes(server, tmp_path):
    server.groups.update(TRAINER)
    fields = {"workerReplicas": {"replicas": 1}, "kfpytorch": {"trainJob": {"framework": "mpi"}}}
    template = a_template({"masterReplicas": {"replicas": 1}, **fields})
    facts = collect_facts(server, tmp_path, template=template)
    assert facts.task.framework == "mpi"
    assert [(each.name, each.count) for each in facts.task.roles] == [("node", 2)]


def test_operator_without_an_available_pod_is_not_used(server, tmp_path):
    server.groups.update(BOTH)
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
