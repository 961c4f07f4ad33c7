# ruff: noqa: E501 - a row a case
"""Tests for the conversion of a task template to a TrainingJob, and for the selection of the kind of a job."""

import pytest
from builders import a_run, a_template, decoded, reject
from msgspec import structs

from backend_plugin.core import settings
from backend_plugin.core.decoding.dialect_selection import DialectSelection, select_dialect, with_dialect
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.job import GangOptions, ReplicaGroup, ReplicaRole, Resources
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

MASTER = ReplicaGroup(role=ReplicaRole.MASTER, replicas=1, restart_policy="Never")
TWO = {"workerReplicas": {"replicas": 2}}


def workers(replicas: int, **fields) -> ReplicaGroup:
    return ReplicaGroup(role=ReplicaRole.WORKER, replicas=replicas, **{"restart_policy": "Never", **fields})


def refusals(custom, **fields) -> list[str]:
    problems = reject(decoded, custom, **fields)
    return [f"{problem.field.removeprefix('custom.')}={problem.value}" for problem in problems]


def of_masters(**fields):
    return {"masterReplicas": fields}


def of_workers(**fields):
    return {"workerReplicas": fields}


ALWAYS, FOUR = "RESTART_POLICY_ALWAYS", of_workers(replicas=4)
COMMON = {"replicas": 2, "image": "b"}
OF_MASTER = {"requests": [{"name": "CPU", "value": "2"}]}
OF_WORKER = {
    "requests": [{"name": 3, "value": "1Gi"}],
    "limits": [{"name": "GPU", "value": "8"}, {"name": "EPHEMERAL_STORAGE", "value": "9Gi"}],
}
PARSED = Resources(requests={"memory": "1Gi"}, limits={"nvidia.com/gpu": "8", "ephemeral-storage": "9Gi"})
ELASTIC = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 4, "nprocPerNode": 2}
RESTARTED = workers(1, restart_policy="Always")
OF_BOTH = {**of_masters(resources=OF_MASTER), **of_workers(replicas=1, resources=OF_WORKER)}
BOTH = (structs.replace(MASTER, resources=Resources(requests={"cpu": "2"})), workers(1, resources=PARSED))
NULLS = {**of_workers(replicas=4, image=None), "worker_replicas": None, "runPolicy": None}


@pytest.mark.parametrize(
    ("custom", "groups"),
    [
        ({**of_workers(replicas=2.0), "masterReplicas": {}}, (MASTER, workers(2))),
        ({"worker_replicas": {"replicas": "3"}}, (MASTER, workers(3))),
        ({**of_workers(), **of_masters(replicas=1)}, (MASTER,)),
        (of_workers(replicas=1, restartPolicy=1), (MASTER, workers(1, restart_policy="OnFailure"))),
        (of_workers(replicas=1, restartPolicy=ALWAYS, unknown={}), (MASTER, RESTARTED)),
        (of_workers(replicas=9, image="a", common=COMMON), (MASTER, workers(2, image="b"))),
        (OF_BOTH, BOTH),
        (NULLS, (MASTER, workers(4))),
        ({**FOUR, **of_masters(replicas=1), "elasticConfig": ELASTIC}, (workers(4, processes=2),)),
    ],
)
def test_replicas_are_parsed_like_protobuf_does(custom, groups):
    assert decoded(custom).groups == groups


def test_old_task_layout_is_decoded_and_a_null_extension_is_absent():
    assert decoded({"workers": 3.0}, taskTypeVersion=0).groups == (MASTER, workers(3))
    elastic = {"workers": 2, "elasticConfig": {**ELASTIC, "maxReplicas": 2}}
    assert decoded(elastic, taskTypeVersion=0).groups == (workers(2, processes=2),)
    assert decoded({"workers": 1, "kfpytorch": None}, taskTypeVersion=0).gang == GangOptions()


def test_invalid_type_or_version_of_a_task_is_rejected():
    assert refusals(TWO, type="spark") == ['type="spark"']
    assert refusals(TWO, taskTypeVersion=2) == ["taskTypeVersion=2"]
    assert refusals(TWO, taskTypeVersion=0) == ['workerReplicas={"replicas": 2.0}']
    assert refusals({"workers": -1}, taskTypeVersion=0) == ["workers=-1"]


def two_with(**extension):
    return {**TWO, "kfpytorch": extension}


OF_TWO = {**ELASTIC, "minReplicas": 2}
NO_ELASTIC = {"minReplicas": 0, "maxReplicas": -1, "maxRestarts": -1}
NO_POLICY = {"cleanPodPolicy": 9, "backoffLimit": -1, "activeDeadlineSeconds": -2}
ODD_LIMITS = {"limits": [{"name": "STORAGE"}, {"name": 8}, {"name": "TPU"}]}
ODD_TOLERATIONS = [{"key": "a", "operator": "In"}, {"key": "b", "effect": "No"}]


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        ({}, "custom={}"),
        ({"runPolicy": {}}, 'custom={"runPolicy": {}}'),
        (of_workers(replicas=2.5), "workerReplicas.replicas=2.5"),
        (of_workers(replicas=2**31), "workerReplicas.replicas=2147483648.0"),
        (of_workers(replicas=True), "workerReplicas.replicas=true"),
        (of_workers(replicas=100001), "workerReplicas.replicas=100001"),
        (of_workers(image=1), "workerReplicas.image=1.0"),
        ({"workerReplicas": [2]}, "workerReplicas=[2.0]"),
        (of_workers(common={"replicas": -2}), "workerReplicas.common.replicas=-2"),
        (of_masters(restartPolicy="NEVER"), 'masterReplicas.restartPolicy="NEVER"'),
        ({**TWO, "worker_replicas": {}}, "worker_replicas={}"),
        ({**TWO, "elasticConfig": {}}, "elasticConfig={}"),
        ({**TWO, "elasticConfig": {**ELASTIC, "minReplicas": 3}}, "workerReplicas.replicas=2"),
        ({"elasticConfig": ELASTIC}, "workerReplicas.replicas=0"),
        ({**TWO, "kfpytorch": 1}, "kfpytorch=1.0"),
        (two_with(gang={"minMember": 4}), "kfpytorch.gang.minMember=4"),
        ({**two_with(gang={"minMember": 1}), "elasticConfig": OF_TWO}, "kfpytorch.gang.minMember=1"),
        (two_with(trainJob={"runtimeKind": "X"}), 'kfpytorch.trainJob.runtimeKind="X"'),
        ({**two_with(master={}), "elasticConfig": ELASTIC}, 'kfpytorch.master="{...}"'),
        (two_with(gang={"priorityClassName": ""}), 'kfpytorch.gang.priorityClassName=""'),
        (two_with(worker={"nodeSelector": {"a": 1}}), 'kfpytorch.worker.nodeSelector={"a": 1.0}'),
    ],
)
def test_invalid_custom_of_a_task_is_rejected(custom, expected):
    assert refusals(custom) == [expected]


@pytest.mark.parametrize(
    ("custom", "path", "values"),
    [
        ({**TWO, "runPolicy": NO_POLICY}, "runPolicy.", ["activeDeadlineSeconds=-2", "backoffLimit=-1", "cleanPodPolicy=9"]),
        (of_masters(resources=ODD_LIMITS), "masterReplicas.resources.limits[", ['2].name="TPU"', '0].name="STORAGE"', "1].name=8"]),
        ({**TWO, "elasticConfig": NO_ELASTIC}, "elasticConfig.", ["maxRestarts=-1", "nprocPerNode=0", "minReplicas=0", "maxReplicas=-1"]),
        (two_with(gang={"minMember": 0, "pendingTimeoutSeconds": -1}), "kfpytorch.gang.", ["minMember=0", "pendingTimeoutSeconds=-1"]),
        (two_with(worker={"tolerations": ODD_TOLERATIONS}), "kfpytorch.worker.tolerations[", ['0].operator="In"', '1].effect="No"']),
    ],
)  # fmt: skip
def test_all_problems_of_a_part_of_the_custom_are_reported(custom, path, values):
    assert refusals(custom) == [f"{path}{value}" for value in values]


ONE = {"masterReplicas": {"replicas": 1}}
OPERATOR = {"kubeflow.org": ("v1",)}
TRAINER = {"trainer.kubeflow.org": ("v1alpha1",), "jobset.x-k8s.io": ("v1alpha2",)}
BOTH = {**OPERATOR, **TRAINER}
PLACE = "project-development"
TORCH, TRAIN = "pytorchjob", "trainjob"
IN_PROJECT = {"project/development": TRAIN, "project/production": TORCH}
NO_PODS = "The job is a TrainJob: no pod of training-operator is available."
IS_UP = "The job is a PyTorchJob: the cluster supports PyTorchJobs and TrainJobs, and training-operator is not known to be down."


def select(apis=None, custom=ONE, down=(), **ours) -> DialectSelection:
    platform = settings.read({"kfpytorch": {key.replace("_", "-"): value for key, value in ours.items()}})
    found = NOTHING if apis is None else Capabilities(apis=apis, unavailable_operators=down)
    return select_dialect(platform.kfpytorch, decoded(custom), found)


@pytest.mark.parametrize(
    ("apis", "down", "kind", "reason"),
    [
        (None, (), "PyTorchJob", ()),
        ({}, (), "PyTorchJob", ()),
        (TRAINER, (), "TrainJob", ("The job is a TrainJob: the cluster has no pytorchjobs.kubeflow.org.",)),
        # Without JobSet, no job of Trainer runs.
        ({**OPERATOR, "trainer.kubeflow.org": ("v1alpha1",)}, (), "PyTorchJob", ()),
        ({**BOTH, "trainer.kubeflow.org": ("v2",)}, (), "PyTorchJob", ()),
        (BOTH, (), "PyTorchJob", (IS_UP,)),
        (BOTH, ("PyTorchJob",), "TrainJob", (NO_PODS,)),
        (BOTH, ("PyTorchJob", "TrainJob"), "PyTorchJob", None),
    ],
)
def test_auto_selects_a_kind_that_the_cluster_supports(apis, down, kind, reason):
    found = select(apis, down=down)
    assert (found.dialect.name, found.problems) == (kind, ())
    assert reason is None or found.reasons == reason


def test_auto_for_a_namespace_selects_a_kind_that_the_cluster_has():
    found = select(OPERATOR, dialect="trainjob", dialect_by_namespace={PLACE: "auto"})
    assert (found.dialect.name, found.problems) == ("PyTorchJob", ())


def test_unknown_facts_about_the_training_operator_are_no_reasons_for_a_trainjob():
    unknown = {"operator_scheduler": "no Deployment", "suspends_jobs": "404", "kueue": "forbidden"}
    found = Capabilities(apis=TRAINER, unknown=unknown)
    template = a_template({**ONE, "workerReplicas": {"replicas": 1}})
    platform = settings.read({"kfpytorch": {"gang": {"scheduler": "auto"}}})
    reasons = plan(template, a_run(), platform, (), found).reasons
    assert reasons[-1].endswith("no scheduler found; kueue is not known: forbidden.")


@pytest.mark.parametrize(
    ("ours", "path"),
    [
        ({"dialect": TRAIN}, "dialect"),
        ({"dialect": TORCH}, "dialect"),
        ({"dialect": TORCH, "dialect_by_namespace": {PLACE: TRAIN, "other": TORCH}}, f"dialect-by-namespace.{PLACE}"),
        ({"dialect_by_namespace": {PLACE: TORCH}, "dialect_by_project": IN_PROJECT}, "dialect-by-project.project/development"),
        ({"dialect": TORCH, "dialect_by_domain": {"development": TRAIN}}, "dialect-by-domain.development"),
        ({"dialect_by_domain": {"development": TORCH}, "dialect_by_namespace": {PLACE: TRAIN}}, f"dialect-by-namespace.{PLACE}"),
        ({"dialect_by_namespace": {PLACE: TORCH}, "dialect_by_project": {"project": TRAIN}}, "dialect-by-project.project"),
        ({"dialect_by_project": {"project": TRAIN, "project/development": TORCH}}, "dialect-by-project.project/development"),
    ],
)  # fmt: skip
def test_setting_selects_the_kind_for_a_project_or_a_namespace(ours, path):
    found = select(BOTH, **ours)
    key, _, name = path.replace("-", "_", 2).partition(".")
    kind = {TORCH: "PyTorchJob", TRAIN: "TrainJob"}[ours[key][name] if name else ours[key]]
    assert found.dialect.name == kind
    assert found.reasons == (f"The job is a {kind}: set by kfpytorch.{path}.",)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("kind", "apis", "missing"),
    [
        ("trainjob", OPERATOR, ["trainer.kubeflow.org/v1alpha1", "jobset.x-k8s.io"]),
        ("pytorchjob", TRAINER, ["kubeflow.org/v1"]),
        ("trainjob", None, []),
    ],
)
def test_kind_that_the_cluster_does_not_serve_is_rejected_with_the_install_command(kind, apis, missing):
    found = select(apis, dialect=kind)
    assert found.dialect.name.lower() == kind
    for each, group in zip(found.problems, missing, strict=True):
        assert (each.field, each.value) == ("kfpytorch.dialect", kind)
        assert each.message.endswith(f"it has no {group}")
        assert each.remedy == f"install {found.dialect.operator}: {found.dialect.installation}"
        assert "kubectl apply --server-side -k" in each.remedy


def test_task_with_train_job_options_is_rejected_if_the_platform_sets_pytorchjob():
    (problem,) = select(BOTH, {**ONE, "kfpytorch": {"trainJob": {}}}, dialect="pytorchjob").problems
    assert (problem.field, problem.value) == ("custom.kfpytorch.trainJob", "{...}")


def test_plan_reports_problems_of_the_selection_and_of_the_task():
    platform = settings.read({"kfpytorch": {"dialect": "trainjob"}})
    template = a_template({**ONE, "workerReplicas": {"replicas": -1}})
    problems = reject(plan, template, a_run(), platform, (), Capabilities(apis=OPERATOR))
    assert [each.field for each in problems][1:] == ["kfpytorch.dialect"] * 2


def test_one_dialect_can_be_set_for_all_jobs():
    by_place = {"dialect-by-domain": {"d": TRAIN}, "dialect-by-namespace": {PLACE: TORCH}}
    section = {"dialect": TORCH, **by_place, "dialect-by-project": {"p/d": "auto"}}
    platform = settings.read({"kfpytorch": section})
    assert platform.kfpytorch.selects_dialect
    assert platform.kfpytorch.detects_dialect
    changed = with_dialect(platform, DIALECTS["TrainJob"]).kfpytorch
    assert changed.dialect == TRAIN
    assert changed.dialect_by_domain == changed.dialect_by_namespace == changed.dialect_by_project == {}
    assert (changed.selects_dialect, changed.detects_dialect) == (True, False)
    assert not with_dialect(platform, DIALECTS["PyTorchJob"]).kfpytorch.selects_dialect
