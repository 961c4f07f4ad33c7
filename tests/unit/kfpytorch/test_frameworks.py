from dataclasses import dataclass, field
from typing import Any

import pytest

from flytekitplugins.kfpytorch import Elastic, PyTorch, TrainJob, Worker
from flytekitplugins.kfpytorch.problems import ConfigError

JAX = TrainJob(framework="jax")


def find_problems(**fields: Any) -> dict[str, str]:
    """Return the remedies for an invalid config by field and value."""
    with pytest.raises(ConfigError) as caught:
        Elastic(**{"nnodes": 2, "train_job": JAX, **fields})
    return dict(problem.rsplit(": ", 1) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start_method", "fork"),
        ("monitor_interval", 1),
        ("max_restarts", 1),
        ("rdzv_configs", {"timeout": 9}),
        ("nproc_per_node", "gpu"),
        ("nnodes", "1:2"),
        ("nnodes", 1),
    ],
)
def test_torch_launcher_setting_is_rejected_for_jax(field: str, value: Any) -> None:
    assert [*find_problems(**{field: value})] == [f"{field}={value!r}"]
    config = Elastic(**{"nnodes": 2, field: value}, train_job=TrainJob())
    assert config.train_job == TrainJob(framework="torch")


@dataclass
class JaxConfig(Elastic):
    train_job: TrainJob | None = field(default_factory=lambda: JAX, kw_only=True)


def test_config_class_with_another_default_framework_is_checked() -> None:
    assert JaxConfig(nnodes=2).problems() == []


@pytest.mark.parametrize("framework", ["flux", "Flux", "IntelMPI", "MPICH", "jacks", None, 1])
def test_unknown_framework_is_rejected(framework: Any) -> None:
    problems = find_problems(train_job=TrainJob(framework=framework))
    assert [*problems] == [f"train_job.framework={framework!r}"]


@pytest.mark.parametrize("nodes", ["1", 1])
def test_remedy_for_an_mpi_job_with_one_node_is_valid(nodes: Any) -> None:
    ((field, remedy),) = find_problems(nnodes=nodes, train_job=TrainJob(framework="mpi")).items()
    assert (field, remedy.endswith("use at least 2 nodes")) == (f"nnodes={nodes!r}", True)


@pytest.mark.parametrize("nodes", ["1", 2])
def test_jax_runs_a_fixed_number_of_processes_on_each_node(nodes: Any) -> None:
    assert Elastic(nnodes=nodes, nproc_per_node=4, train_job=JAX).min_max_nodes() == (int(nodes),) * 2
    assert PyTorch(worker=Worker(replicas=1), train_job=JAX).workers() == 1


@pytest.mark.parametrize(
    ("workers", "options", "field"),
    [(0, {}, "worker.replicas=0"), (1, {"runtime": "mine"}, "train_job.runtime='mine'")],
)
def test_mpi_job_with_one_node_or_a_named_runtime_is_rejected(
    workers: int, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PyTorch(worker=Worker(replicas=workers), train_job=TrainJob(framework="mpi", **options))
    assert [problem.rsplit(": ", 1)[0] for problem in caught.value.problems] == [field]
