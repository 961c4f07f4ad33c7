"""Tests of the table of operators."""

from dataclasses import replace

import pytest
from builders import a_run, a_template

from backend_plugin.core.dialects import table as dialects
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.doctor.facts import Facts, PlannedTask, Subject
from backend_plugin.doctor.operators import table

REPLICAS = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 3}}
ELASTIC = {
    "workerReplicas": {"replicas": 4},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 4, "nprocPerNode": 4, "maxRestarts": 3},
}
DEPLOYMENT = {"metadata": {"name": "training-operator"}}


def test_each_dialect_has_an_operator() -> None:
    assert table.OPERATORS.keys() == dialects.DIALECTS.keys()


def test_a_check_of_an_operator_applies_only_to_jobs_of_its_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(dialects.DEFAULT, resource=replace(dialects.DEFAULT.resource, kind="OtherJob"))
    monkeypatch.setitem(dialects.DIALECTS, "OtherJob", other)  # type: ignore[arg-type]
    (check,) = [each for each in table.CHECKS if each.id == "operator-crd-missing"]
    job = {"apiVersion": "kubeflow.org/v1", "kind": "OtherJob"}
    assert [*check.judge(Facts(namespace="n"))]
    assert not [*check.judge(Facts(namespace="n", task=PlannedTask(job=job)))]


def test_a_deployment_is_an_operator_by_its_name_or_its_image() -> None:
    by_image = {
        "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": [{"image": "h/training-operator:v1"}]}}},
    }
    facts = Facts(
        namespace="n", seen={Subject.DEPLOYMENTS: [DEPLOYMENT, by_image, {"metadata": {"name": "b"}}]}
    )
    assert table.list_operators(facts) == [DEPLOYMENT, by_image]


@pytest.mark.parametrize(
    ("custom", "counts"),
    [(REPLICAS, [("master", 1, 1), ("worker", 3, 3)]), (ELASTIC, [("worker", 4, 2)])],
)
def test_the_pods_of_a_job_have_the_labels_and_the_port_of_the_operator(custom, counts) -> None:
    job = plan(a_template(custom), a_run(), read({})).manifests[0]
    roles = table.get_operator(job).build_role_pods(job)
    assert [(role.name, role.count, role.needed) for role in roles] == counts
    first, *others = roles
    name = job["metadata"]["name"]
    assert first.pod["metadata"]["name"] == f"{name}-{first.name}-0"
    labels = first.pod["metadata"]["labels"]
    assert {
        key: labels[f"training.kubeflow.org/{key}"] for key in ("job-name", "replica-type", "job-role")
    } == {
        "job-name": name,
        "replica-type": first.name,
        "job-role": "master",
    }
    for role in roles:
        (trainer,) = [each for each in role.pod["spec"]["containers"] if each["name"] == "pytorch"]
        assert [(each["name"], each["containerPort"]) for each in trainer["ports"]] == [
            ("pytorchjob-port", 23456)
        ]
    for role in others:
        assert "training.kubeflow.org/job-role" not in role.pod["metadata"]["labels"]
        assert [each["name"] for each in role.pod["spec"]["initContainers"]] == ["init-pytorch"]
