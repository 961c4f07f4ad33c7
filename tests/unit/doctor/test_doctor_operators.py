# ruff: noqa: E501 - a row a case
"""Tests of operators, of versions in image tags, and of the comparison of sent with stored objects."""

from typing import Any

import pytest
from builders import a_run, a_template
from remedy_cases import TRAIN_JOB, build_object, deployment, operator, task_of

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.names import IDENTITY
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.settings import read
from backend_plugin.doctor import deployments, role_pods, summary
from backend_plugin.doctor.cluster_reader import ClusterReader
from backend_plugin.doctor.facts import DryRunReply, Facts, NotReadable, PlannedTask, RolePods, Subject
from backend_plugin.doctor.operators import table
from backend_plugin.doctor.run_checks import CHECKS
from backend_plugin.kube.api_errors import ApiError

REPLICAS = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 3}}
ELASTIC = {
    "workerReplicas": {"replicas": 4},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 4, "nprocPerNode": 4, "maxRestarts": 3},
}
OF_MPI = {**REPLICAS, "kfpytorch": {"trainJob": {"framework": "mpi"}}}
DATA = {"dataset": {"uri": "s3://data/digits"}, "storage": {"size": "1Gi"}}
WITH_DATA = {**REPLICAS, "kfpytorch": {"trainJob": DATA}}
QUEUE_NAME = {"kueue.x-k8s.io/queue-name": "team"}


def test_check_of_an_operator_applies_only_to_jobs_of_its_dialect() -> None:
    for name, own, other in (("PyTorchJob", "operator", "trainer"), ("TrainJob", "trainer", "operator")):
        facts = Facts(namespace="n", task=PlannedTask(dialect=DIALECTS[name]))
        assert [check for check in (own, other) if find_sentences(f"{check}-crd-missing", facts)] == [own]


@pytest.mark.parametrize(
    ("custom", "counts"), [(REPLICAS, [("master", 1, 1), ("worker", 3, 3)]), (ELASTIC, [("worker", 4, 2)])]
)
def test_role_pods_have_the_labels_and_the_port_of_the_operator(custom, counts) -> None:
    job = plan(a_template(custom), a_run(), read({})).job
    roles = table.get_operator(DIALECTS["PyTorchJob"]).build_role_pods(job, ())
    assert [(role.name, role.count, role.needed) for role in roles] == counts
    first, *others = roles
    name = job["metadata"]["name"]
    assert first.pod["metadata"]["name"] == f"{name}-{first.name}-0"
    label = "training.kubeflow.org/"
    expected = {f"{label}job-name": name, f"{label}replica-type": first.name, f"{label}job-role": "master"}
    assert first.pod["metadata"]["labels"].items() >= expected.items()
    for role in roles:
        (trainer,) = [each for each in role.pod["spec"]["containers"] if each["name"] == "pytorch"]
        ports = [(each["name"], each["containerPort"]) for each in trainer["ports"]]
        assert ports == [("pytorchjob-port", 23456)]
    for role in others:
        assert f"{label}job-role" not in role.pod["metadata"]["labels"]
        assert [each["name"] for each in role.pod["spec"]["initContainers"]] == ["init-pytorch"]
        assert "ownerReferences" not in role.pod["metadata"]


@pytest.mark.parametrize(
    ("custom", "count", "needed"), [(REPLICAS, 4, 4), (ELASTIC, 4, 2), (OF_MPI, 4, 4), (WITH_DATA, 4, 4)]
)
def test_train_job_pods_are_built_from_its_runtime(custom, count, needed) -> None:
    planned = plan(a_template(custom), a_run(), read({"kfpytorch": {"dialect": "trainjob"}}))
    gang = GangSettings(scheduler="volcano", pod_groups_by="operator", scheduler_name="mine")
    (role,) = role_pods.build_role_pods(planned, gang)
    name = planned.job["metadata"]["name"]
    assert (role.name, role.count, role.needed) == ("node", count, needed)
    labels = role.pod["metadata"]["labels"]
    found = {key.rpartition("/")[2]: labels[key] for key in labels if "jobset" in key or "batch" in key}
    indices = {"job-completion-index": "0", "restart-attempt": "0"}
    assert found == {"jobset-name": name, "replicatedjob-name": "node", **indices}
    assert labels[IDENTITY] == planned.job["metadata"]["labels"][IDENTITY]
    spec = role.pod["spec"]
    (trainer,) = spec["containers"]
    assert (trainer["name"], trainer["image"]) == ("node", "image:1")
    fields = ("hostname", "subdomain", "restartPolicy", "schedulerName")
    assert [spec[key] for key in fields] == [f"{name}-node-0-0", name, "Never", "mine"]


def plan_facts(custom: object, settings: object, **objects: object) -> Facts:
    planned = plan(a_template(custom), a_run(), read({"kfpytorch": settings}))
    gang = read({"kfpytorch": settings}).kfpytorch.gang
    roles = role_pods.build_role_pods(planned, gang)
    task = PlannedTask(dialect=DIALECTS[planned.dialect], plan=planned, roles=roles)
    found = {Subject[name]: value for name, value in objects.items()}
    return Facts(namespace="n", task=task, gang=gang, objects=found)


def build_queues(*quotas: str, **local: object) -> dict[str, object]:
    """Return a LocalQueue, and its ClusterQueue with a flavor for each of the quotas of CPUs."""
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": each}]} for each in quotas]
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    about = {"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "team"}}
    queue = {**about, "kind": "LocalQueue", "spec": {"clusterQueue": "all", **local}}
    parent = {**about, "kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": spec}
    other = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}}
    return {"QUEUES": [other, queue], "PARENT_QUEUES": [parent]}


def find_sentences(check: str, facts: Facts) -> list[str]:
    (judge,) = [each.judge for each in CHECKS if each.id == check]
    return [each.sentence for each in judge(facts)]


@pytest.mark.parametrize("dialect", ["pytorchjob", "trainjob"])
def test_queue_that_counts_all_replicas_needs_quota_for_all_nodes_of_an_elastic_job(dialect) -> None:
    kueue = {"dialect": dialect, "gang": {"scheduler": "kueue", "queue": "team"}}
    (sentence,) = find_sentences("queue-too-small", plan_facts(ELASTIC, kueue, **build_queues("3")))
    assert sentence == "the queue all has 3 cpu at most, and the job needs 4"
    assert not find_sentences("queue-too-small", plan_facts(ELASTIC, kueue, **build_queues("3", "1")))


@pytest.mark.parametrize(
    ("dialect", "gang", "needed"),
    [
        # KAI derives the size from the JobSet of a TrainJob, or from the minimum of a PyTorchJob.
        ("trainjob", {"scheduler": "kai"}, 4),
        ("trainjob", {"scheduler": "kai", "local-queue": "team"}, 4),
        ("pytorchjob", {"scheduler": "kai"}, 2),
        # Kueue gives quota to all nodes, and another scheduler starts the job with its minimum.
        ("trainjob", {"scheduler": "kueue", "queue": "team"}, 2),
    ],
)
def test_quota_counts_the_pods_that_the_gang_scheduler_starts_together(dialect, gang, needed) -> None:
    hard = {"pods": str(needed - 1), "requests.cpu": str(needed - 1), "limits.cpu": str(needed)}
    quota = {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": hard}}
    facts = plan_facts(ELASTIC, {"dialect": dialect, "gang": gang}, QUOTAS=[quota])
    assert find_sentences("quota-too-small", facts) == [
        f"the quota q allows {needed - 1} {name}, but the job needs {needed}: it would never run"
        for name in ("pods", "requests.cpu")
    ]


@pytest.mark.parametrize(("scheduler", "queue"), [("coscheduling", ""), ("volcano", "team")])
def test_queue_before_a_gang_scheduler_is_checked_like_other_queues(scheduler, queue) -> None:
    gang = {"scheduler": scheduler, "pod-groups-by": "backend", "queue": queue, "local-queue": "team"}
    settings = {"gang": {key: value for key, value in gang.items() if value}}
    facts = plan_facts(REPLICAS, settings, **build_queues("3", stopPolicy="Hold"))
    assert find_sentences("queue-closed", facts) == ["the queue team accepts no jobs: is Hold"]
    sentence = "the queue all has 3 cpu at most, and the job needs 4"
    assert find_sentences("queue-too-small", facts) == [sentence]
    assert len(find_sentences("queue-uncovered", facts)) == 1
    assert not find_sentences("queue-missing", facts)
    others = plan_facts(REPLICAS, settings, QUEUES=build_queues()["QUEUES"][:1])
    assert find_sentences("queue-missing", others) == ["kueue has no queue team; its queues: none"]


def test_secrets_of_the_initializers_of_a_trainjob_must_exist() -> None:
    data = {**DATA, "dataset": {**DATA["dataset"], "secret": "data"}, "model": {"uri": "hf://a/b"}}
    custom = {**REPLICAS, "kfpytorch": {"trainJob": data}}
    secret = {"metadata": {"name": "data"}}
    (sentence,) = find_sentences("secret-missing", plan_facts(custom, {}, SECRETS=[]))
    assert "pods need the Secret data," in sentence
    assert not find_sentences("secret-missing", plan_facts(custom, {}, SECRETS=[secret]))


def test_value_of_a_flag_is_read_in_each_form_that_go_accepts() -> None:
    for arguments in (["--namespace=ml"], ["-namespace=ml"], ["--namespace", "ml"], ["-namespace", "ml"]):
        assert deployments.list_flag_values(operator(*arguments, "--namespace"), "namespace") == ["ml"]


def a_schema(kind, **fields):
    versions = [{"schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}}]
    return {"spec": {"names": {"kind": kind}, "versions": versions}}


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        (a_schema("TrainJob", runtimePatches={}), []),
        (a_schema("TrainJob", podTemplateOverrides={}), ["runtimePatches"]),
        (a_schema("JobSet", failurePolicy={"properties": {"rules": {}, "restartStrategy": {}}}), []),
        (a_schema("JobSet", failurePolicy={"properties": {"rules": {}}}), ["restartStrategy"]),
        (a_schema("JobSet"), ["rules"]),
        (a_schema("PyTorchJob"), []),
    ],
)
def test_outdated_api_of_trainer_or_jobset_is_found_by_a_missing_field(schema, missing) -> None:
    facts = Facts(namespace="n", task=TRAIN_JOB, objects={Subject.JOB_SCHEMA: [schema]})
    found = find_sentences("trainer-crd-outdated", facts)
    assert [name for name, sentence in zip(missing, found, strict=True) if name in sentence] == missing


def test_train_job_with_a_status_shows_that_trainer_runs_without_a_deployment() -> None:
    for objects, missing in (
        ({}, ["Kubeflow Trainer", "JobSet"]),
        ({Subject.DEPLOYMENTS: [{"metadata": {"name": "jobset-controller-manager"}}]}, ["Kubeflow Trainer"]),
        ({Subject.JOBS: [{"kind": "TrainJob", "status": {"jobsStatus": [{"name": "node"}]}}]}, []),
    ):
        found = find_sentences("trainer-missing", Facts(namespace="n", task=TRAIN_JOB, objects=objects))
        assert [each.partition(",")[0] for each in found] == [
            f"no Deployment runs {each}" for each in missing
        ]


@pytest.mark.parametrize(
    ("tag", "label", "dialect", "count"),
    [
        ("v0.16.2", QUEUE_NAME, "TrainJob", 1),
        ("v0.17.0", QUEUE_NAME, "TrainJob", 0),
        ("v0.16.2", {}, "TrainJob", 0),
        ("v0.16.2", QUEUE_NAME, "PyTorchJob", 0),
        ("main", QUEUE_NAME, "TrainJob", 0),
    ],
)
def test_kueue_version_that_drops_train_job_selectors_is_reported(tag, label, dialect, count) -> None:
    kueue = deployment("kueue-controller-manager", f"kueue:{tag}")
    task = task_of({"metadata": {"labels": label}}, dialect)
    facts = Facts(namespace="n", task=task, objects={Subject.DEPLOYMENTS: [kueue]})
    assert ["0.16.2" in sentence for sentence in find_sentences("queue-outdated", facts)] == [True] * count


def test_pods_on_a_named_runtime_have_the_parts_that_the_job_sets() -> None:
    placement = {"nodeSelector": {"pool": "a"}}
    extension = {"master": placement, "worker": placement, "trainJob": {"runtime": "torch-distributed"}}
    planned = plan(a_template({**REPLICAS, "kfpytorch": extension}), a_run(), read({}))
    assert planned.prerequisites == ()
    (role,) = role_pods.build_role_pods(planned, GangSettings())
    (trainer,) = role.pod["spec"]["containers"]
    assert (role.count, trainer["name"], trainer["image"]) == (4, "node", "image:1")
    assert trainer["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert role.pod["spec"]["nodeSelector"] == {"pool": "a"}


def runs(image: str, label: str = "", *beside: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    containers = [*({"image": each} for each in beside), {"image": image, "args": [*args]}]
    labels = {"app.kubernetes.io/version": label} if label else {}
    spec = {"template": {"spec": {"containers": containers}}}
    return build_object("d", "n", metadata={"labels": labels}, spec=spec)


def test_version_is_read_from_the_tag_or_else_the_label() -> None:
    expected = {
        ("h:5000/training-operator:v1.9.3", ""): (1, 9, 3),
        ("training-operator:1.9", ""): (1, 9, 0),
        ("training-operator:v1.9.3-rc1@sha256:12", "1.0.0"): (1, 9, 3),
        ("training-operator@sha256:12", "1.8.1"): (1, 8, 1),
        ("training-operator:latest", "v1.7"): (1, 7, 0),
        ("h:5000/training-operator", ""): None,
    }
    assert {
        (image, label): deployments.find_version(runs(image, label)) for image, label in expected
    } == expected


def test_flyte_version_is_read_from_its_own_tag_or_a_non_chart_label() -> None:
    expected = {
        ("h:5000/flyte-binary:v1.16.8", ""): (1, 16, 8),
        ("flyte-binary:v1.16.0", "1.16.0"): (1, 16, 0),
        # Newer charts have this label too.
        ("flyte-binary@sha256:12", "1.16.0"): None,
        ("flyte-binary@sha256:12", "1.16.7"): (1, 16, 7),
        ("flyte-binary:latest", "v1.15.0"): (1, 15, 0),
        # The patch number is not known.
        ("flyte-binary:1.16", ""): None,
        ("flyte-binary:latest", "1.16"): None,
    }
    assert {
        (image, label): deployments.find_flyte_version(runs(image, label, "cloud-sql-proxy:2.8.0"))
        for image, label in expected
    } == expected


def test_webhook_of_flyte_core_is_not_a_second_propeller() -> None:
    propeller = runs("flytepropeller:v1.16.6", args=("--config", "/etc/flyte/config/*.yaml"))
    webhook = runs("flytepropeller:v1.16.6", args=("webhook", "--config", "/etc/flyte/config/*.yaml"))
    facts = Facts(namespace="n", objects={Subject.DEPLOYMENTS: [propeller, webhook]})
    assert len(find_sentences("flyte-outdated", facts)) == 1


@pytest.mark.parametrize(
    ("image", "is_found", "line"),
    [
        ("flyte-binary-release:v1.16.7", False, "n/d 1.16.7"),
        ("flytepropeller:v2.0.0", False, "n/d 2.0.0"),
        ("flytepropeller:v1.16.6", True, "n/d 1.16.6"),
        ("flytepropeller:nightly", False, "n/d (unknown version)"),
        ("flyteconnector:v1.0.0", False, "none found"),
    ],
)
def test_flyte_version_is_compared_with_the_required_version(image: str, is_found: bool, line: str) -> None:
    facts = Facts(namespace="n", objects={Subject.DEPLOYMENTS: [runs(image)]})
    assert bool(find_sentences("flyte-outdated", facts)) is is_found
    assert summary.build_lines(facts)["flyte"] == line


def test_missing_webhook_is_reported_only_if_the_operator_may_exist() -> None:
    for fields, is_found in (
        ({}, False),
        ({"objects": {Subject.DEPLOYMENTS: [runs("training-operator:v1.9.3")]}}, True),
        ({"unseen": {Subject.DEPLOYMENTS: NotReadable("forbidden")}}, True),
    ):
        facts = Facts(namespace="n", invalid_reply=DryRunReply(stored={}), **fields)
        assert bool(find_sentences("webhook-missing", facts)) is is_found


def a_trainer(**requests: str) -> dict[str, Any]:
    return {"name": "pytorch", "resources": {"requests": requests}}


SENT = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [a_trainer(memory="1024Mi")], "tolerations": [{"key": "x"}], "priority": 0},
}


def stored(**spec: Any) -> dict[str, Any]:
    return {"metadata": SENT["metadata"], "spec": {**SENT["spec"], **spec}}


def test_added_field_is_no_change() -> None:
    assert list_sentences(stored(dnsPolicy="ClusterFirst", schedulerName="default-scheduler")) == []
    assert list_sentences(stored(containers=[{"name": "proxy"}, a_trainer(memory="1Gi")])) == []
    assert list_sentences(stored(tolerations=[{"key": "y"}, {"key": "x"}], priority=None)) == []


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({"tolerations": []}, "spec.tolerations[0] is None instead of {'key': 'x'}"),
        ({"schedulerName": "yunikorn"}, "spec.schedulerName is 'yunikorn', which the job does not set"),
        ({"containers": [a_trainer(memory="2Gi")]}, "spec.containers[pytorch].resources.requests.memory is '2Gi' instead of '1024Mi'"),
        ({"containers": [a_trainer(memory="1Gi", cpu="1")]}, "spec.containers[pytorch] requests cpu, which the job does not set"),
    ],
)  # fmt: skip
def test_change_is_reported_with_its_path(spec: dict[str, Any], change: str) -> None:
    (sentence,) = list_sentences(stored(**spec))
    assert sentence == f"the cluster changes the worker pod before it is stored: {change}"


def list_sentences(stored: dict[str, Any], sent: dict[str, Any] = SENT) -> list[str]:
    task = PlannedTask(roles=[RolePods(name="worker", count=1, needed=1, pod=sent)])
    facts = Facts(namespace="n", task=task, pod_replies={"worker": DryRunReply(stored=stored)})
    return find_sentences("pod-changed", facts)


def test_many_changes_are_summarized() -> None:
    sent = {**SENT, "metadata": {"labels": {str(number): "x" for number in range(8)}}}
    (sentence,) = list_sentences({**sent, "metadata": {}}, sent)
    assert sentence.endswith(", and 3 more")


class RefusingApi:
    """An API client whose requests are rejected, because the runtime of a TrainJob does not exist."""

    async def send_once(self, *_: object) -> bytes:
        message = 'TrainingRuntime "j" must be created before the TrainJob'
        raise ApiError(403, {"reason": "Forbidden", "message": message})


@pytest.mark.parametrize(("kind", "is_stored"), [("TrainJob", True), ("PyTorchJob", False)])
async def test_job_rejected_only_for_missing_dry_run_prerequisites_is_accepted(kind, is_stored) -> None:
    dialect = DIALECTS[kind]
    manifest = dialect.build_probe({"name": "j", "namespace": "n"})
    reply = await ClusterReader(RefusingApi()).dry_run_create(manifest, dialect)
    assert (reply.stored == manifest, reply.reason) == ((True, "") if is_stored else (False, "Forbidden"))
