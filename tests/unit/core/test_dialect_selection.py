# ruff: noqa: E501 - a row a case
"""Tests of the selection of the kind of a job from the settings, the task and the APIs of the cluster."""

import pytest
from builders import a_run, a_template, decoded, reject

from backend_plugin.core import settings
from backend_plugin.core.decoding.dialect_selection import DialectSelection, select_dialect, with_dialect
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

ONE = {"masterReplicas": {"replicas": 1}}
TRAIN_JOB = {**ONE, "kfpytorch": {"trainJob": {}}}
OPERATOR = {"kubeflow.org": ("v1",)}
TRAINER = {"trainer.kubeflow.org": ("v1alpha1",), "jobset.x-k8s.io": ("v1alpha2",)}
BOTH = {**OPERATOR, **TRAINER}
PLACE = "project-development"
TORCH, TRAIN = "pytorchjob", "trainjob"
IN_PROJECT = {"project/development": TRAIN, "project/production": TORCH}
NO_PODS = "The job is a TrainJob: no pod of training-operator is available."
NO_KIND = "The job is a TrainJob: the cluster has no pytorchjobs.kubeflow.org."
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
        (OPERATOR, (), "PyTorchJob", ()),
        (TRAINER, (), "TrainJob", (NO_KIND,)),
        # Without JobSet, no job of Trainer runs.
        ({**OPERATOR, "trainer.kubeflow.org": ("v1alpha1",)}, (), "PyTorchJob", ()),
        ({**BOTH, "trainer.kubeflow.org": ("v2",)}, (), "PyTorchJob", ()),
        (BOTH, (), "PyTorchJob", (IS_UP,)),
        (BOTH, ("PyTorchJob",), "TrainJob", (NO_PODS,)),
        (BOTH, ("PyTorchJob", "TrainJob"), "PyTorchJob", None),
        (BOTH, ("TrainJob",), "PyTorchJob", None),
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
        ("trainjob", {"trainer.kubeflow.org": ("v1alpha1",)}, ["jobset.x-k8s.io"]),
        ("pytorchjob", TRAINER, ["kubeflow.org/v1"]),
        ("trainjob", BOTH, []),
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
    (problem,) = select(BOTH, TRAIN_JOB, dialect="pytorchjob").problems
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
