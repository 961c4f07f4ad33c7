from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flytekitplugins.kfpytorch as kf
from flytekitplugins.kfpytorch.custom import encode_extension
from flytekitplugins.kfpytorch.problems import ConfigError
from flytekitplugins.kfpytorch.retries import RestartSettings

JAX = kf.TrainJob(framework="jax")
ALWAYS, FAILURE, NEVER = kf.RestartPolicy.ALWAYS, kf.RestartPolicy.FAILURE, kf.RestartPolicy.NEVER
FIVE = kf.TrainJob(max_restarts=5)
NO_RESTARTS = kf.TrainJob(max_restarts=0)
DATASET = "s3://data/digits"
MODEL = "hf://owner/model"
SIZE = "50Gi"
TOKEN = {"ACCESS_TOKEN": "x"}


def find_problems(**fields: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        kf.Elastic(**{"nnodes": 2, "train_job": JAX, **fields})
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
    config = kf.Elastic(**{"nnodes": 2, field: value}, train_job=kf.TrainJob())
    assert config.train_job == kf.TrainJob(framework="torch")


def test_config_class_with_another_default_framework_is_checked() -> None:
    @dataclass
    class JaxConfig(kf.Elastic):
        train_job: kf.TrainJob | None = field(default_factory=lambda: JAX, kw_only=True)

    assert JaxConfig(nnodes=2).problems() == []


@pytest.mark.parametrize("framework", ["flux", "IntelMPI", "jacks", None, 1])
def test_unknown_framework_is_rejected(framework: Any) -> None:
    problems = find_problems(train_job=kf.TrainJob(framework=framework))
    assert [*problems] == [f"train_job.framework={framework!r}"]


def test_remedy_for_an_mpi_job_with_one_node_is_valid() -> None:
    for nodes in ("1", 1):
        ((field, remedy),) = find_problems(nnodes=nodes, train_job=kf.TrainJob(framework="mpi")).items()
        assert (field, remedy.endswith("use at least 2 nodes")) == (f"nnodes={nodes!r}", True)


@pytest.mark.parametrize("nodes", ["1", 2])
def test_jax_runs_a_fixed_number_of_processes_on_each_node(nodes: Any) -> None:
    assert kf.Elastic(nnodes=nodes, nproc_per_node=4, train_job=JAX).min_max_nodes() == (int(nodes),) * 2
    assert kf.PyTorch(worker=kf.Worker(replicas=1), train_job=JAX).workers() == 1


@pytest.mark.parametrize(
    ("workers", "options", "field"),
    [(0, {}, "worker.replicas=0"), (1, {"runtime": "mine"}, "train_job.runtime='mine'")],
)
def test_mpi_job_with_one_node_or_a_named_runtime_is_rejected(workers, options, field) -> None:
    with pytest.raises(ConfigError) as caught:
        kf.PyTorch(worker=kf.Worker(replicas=workers), train_job=kf.TrainJob(framework="mpi", **options))
    assert [problem.rsplit(": ", 1)[0] for problem in caught.value.problems] == [field]


def operator_fails_job(restarts: dict[kf.RestartPolicy, int], limit: int | None) -> bool:
    """Return the result of PastBackoffLimit in training-operator v1 (reference/pytorchjob.md 2.7)."""
    total = sum(count for policy, count in restarts.items() if policy is not NEVER)
    return limit is not None and (total > 0 if limit == 0 else total >= limit)


@pytest.mark.parametrize(
    ("master", "worker", "expected"),
    [
        # Without num_retries, the policies stay unchanged.
        (kf.Master(), kf.Worker(replicas=4), (None, None, None)),
        (kf.Master(restart_policy=ALWAYS), kf.Worker(replicas=4), (ALWAYS, None, None)),
        # The number of one role applies to both roles, because a failed rank ends its peers.
        (kf.Master(num_retries=3), kf.Worker(replicas=4), (FAILURE, FAILURE, 16)),
        (kf.Master(), kf.Worker(replicas=4, num_retries=3), (FAILURE, FAILURE, 16)),
        (kf.Master(), kf.Worker(replicas=4, num_retries=2**31 - 1), (FAILURE, FAILURE, 2**31 - 1)),
        # A role that never restarts does not count.
        (kf.Master(num_retries=3), kf.Worker(replicas=4, restart_policy=NEVER), (FAILURE, NEVER, 4)),
        (kf.Master(num_retries=0), kf.Worker(replicas=4, num_retries=2), (NEVER, FAILURE, 9)),
        # Policies that agree with the numbers are valid.
        (kf.Master(restart_policy=FAILURE, num_retries=1), kf.Worker(replicas=1), (FAILURE, FAILURE, 3)),
        (kf.Master(restart_policy=NEVER, num_retries=0), kf.Worker(replicas=1), (NEVER, NEVER, None)),
        # 0 means no restart and needs no limit. The explicit policy of the other role then has no limit.
        (kf.Master(num_retries=0), kf.Worker(replicas=4), (NEVER, NEVER, None)),
        (kf.Master(num_retries=0), kf.Worker(replicas=4, restart_policy=FAILURE), (NEVER, FAILURE, None)),
    ],
)
def test_retries_of_roles_set_restart_policies_and_a_backoff_limit(master, worker, expected) -> None:
    assert kf.PyTorch(master, worker).restarts() == RestartSettings(*expected)


def test_backoff_limit_of_a_run_policy_is_kept() -> None:
    config = kf.PyTorch(worker=kf.Worker(replicas=2, restart_policy=FAILURE), run_policy={"backoff_limit": 7})
    assert config.restarts() == RestartSettings(None, FAILURE, 7)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_each_replica_may_restart_as_often_as_its_role_permits(master, worker, replicas) -> None:
    restarts = kf.PyTorch(
        kf.Master(num_retries=master), kf.Worker(replicas=replicas, num_retries=worker)
    ).restarts()
    assert (restarts.master is NEVER, restarts.worker is NEVER) == (master == 0, worker == 0)
    permitted = master + replicas * worker
    assert not operator_fails_job({FAILURE: permitted}, restarts.backoff_limit)
    if restarts.backoff_limit is not None:
        assert operator_fails_job({FAILURE: permitted + 1}, restarts.backoff_limit)


@pytest.mark.parametrize(
    ("role", "policy", "train_job", "words"),
    [
        ({"num_retries": 5}, None, FIVE, "num_retries"),
        ({}, {"backoff_limit": 5}, FIVE, "run_policy.backoff_limit"),
        ({"restart_policy": NEVER}, None, FIVE, "restart_policy="),
        ({"restart_policy": FAILURE}, None, NO_RESTARTS, "restart_policy="),
    ],
)
def test_conflicting_restart_limits_of_a_train_job_are_rejected(role, policy, train_job, words) -> None:
    with pytest.raises(ConfigError) as caught:
        kf.PyTorch(worker=kf.Worker(replicas=2, **role), run_policy=policy, train_job=train_job)
    assert f"train_job.max_restarts={train_job.max_restarts}: {words}" in str(caught.value)
    with pytest.raises(ConfigError, match=r"train_job\.max_restarts=5"):
        kf.Elastic(nnodes=2, run_policy={"backoff_limit": 1}, train_job=FIVE)


def test_restart_policy_may_agree_with_the_restarts() -> None:
    kf.Elastic(nnodes=2, max_restarts=3, train_job=FIVE)
    for policy, train_job in ((None, FIVE), (FAILURE, FIVE), (NEVER, NO_RESTARTS), (FAILURE, kf.TrainJob())):
        kf.PyTorch(worker=kf.Worker(replicas=2, restart_policy=policy), train_job=train_job)


def build(**options: Any) -> kf.PyTorch:
    return kf.PyTorch(worker=kf.Worker(replicas=1), train_job=kf.TrainJob(**options))


def test_text_is_accepted_as_a_uri_or_a_size() -> None:
    assert build(dataset=DATASET, model=MODEL, storage=SIZE) == build(
        dataset=kf.Dataset(uri=DATASET), model=kf.Model(uri=MODEL), storage=kf.Storage(size=SIZE)
    )


def test_encoded_config_has_all_fields() -> None:
    dataset = kf.Dataset(uri=DATASET, secret="s3", env={"REGION": "eu"})
    storage = kf.Storage(size=SIZE, storage_class="fast")
    written = encode_extension(build(dataset=dataset, model=MODEL, storage=storage))
    expected = {
        "dataset": {"uri": DATASET, "secret": "s3", "env": {"REGION": "eu"}},
        "model": {"uri": MODEL},
        "storage": {"size": SIZE, "storageClass": "fast"},
    }
    assert {name: written["kfpytorch"]["trainJob"][name] for name in expected} == expected


def test_valid_source_is_accepted() -> None:
    for options in (
        {"dataset": DATASET, "storage": kf.Storage(claim="shared")},
        {"dataset": "s3://bucket", "storage": SIZE},
        {"runtime": "mine", "dataset": "cache://schema/table", "model": MODEL},
    ):
        assert build(**options).problems() == []


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"dataset": DATASET}, "storage"),
        ({"storage": SIZE}, "storage"),
        ({"runtime": "mine", "dataset": DATASET, "storage": SIZE}, "storage"),
        ({"dataset": "hf://name", "storage": SIZE}, "dataset.uri"),
        ({"dataset": "gs://a/b", "storage": SIZE}, "dataset.uri"),
        ({"dataset": "s3://key:secret@bucket/a", "storage": SIZE}, "dataset.uri"),
        ({"dataset": "cache://schema/table", "storage": SIZE}, "dataset.uri"),
        ({"model": "cache://schema/table", "runtime": "mine"}, "model.uri"),
        ({"model": 3, "storage": SIZE}, "model"),
        ({"model": kf.Model(uri=MODEL, secret="No Name"), "storage": SIZE}, "model.secret"),
        ({"model": kf.Model(uri=MODEL, env=["A"]), "storage": SIZE}, "model.env"),
        ({"model": kf.Model(uri=MODEL, env={"A": 1}), "storage": SIZE}, "model.env['A']"),
        ({"model": kf.Model(uri=MODEL, env={"1A": ""}), "storage": SIZE}, "model.env['1A']"),
        (
            {"model": kf.Model(uri=MODEL, env={"STORAGE_URI": ""}), "storage": SIZE},
            "model.env['STORAGE_URI']",
        ),
        ({"model": kf.Model(uri=MODEL, env=TOKEN), "storage": SIZE}, "model.env['ACCESS_TOKEN']"),
        ({"dataset": DATASET, "storage": kf.Storage()}, "storage.size"),
        ({"dataset": DATASET, "storage": kf.Storage(size="0")}, "storage.size"),
        ({"dataset": DATASET, "storage": kf.Storage(claim="a", size=SIZE)}, "storage.size"),
        ({"dataset": DATASET, "storage": kf.Storage(claim="A B")}, "storage.claim"),
    ],
)
def test_invalid_value_is_reported_with_its_path(options: Any, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build(**options)
    assert [each.partition("=")[0].removeprefix("train_job.") for each in refused.value.problems] == [path]


def test_credential_is_not_repeated_in_the_message() -> None:
    token = "hf_" + 30 * "q"
    with pytest.raises(ConfigError) as refused:
        build(model=kf.Model(uri=MODEL, env={"HEADER": token}), storage=SIZE)
    assert token not in str(refused.value)


def test_initializers_of_a_standalone_pod_are_rejected() -> None:
    options = kf.TrainJob(dataset=DATASET, storage=SIZE)
    with pytest.raises(ConfigError) as refused:
        kf.Elastic(nnodes=1, train_job=options)
    assert [each.partition("=")[0] for each in refused.value.problems] == ["train_job.dataset"]
    assert kf.Elastic(nnodes="1", train_job=options).train_job == options
