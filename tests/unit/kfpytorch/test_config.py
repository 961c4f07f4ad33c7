import copy
import inspect
import pickle
from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
from flytekit import Resources
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch import (
    CleanPodPolicy,
    Elastic,
    Gang,
    Master,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    SuccessPolicy,
    TrainJob,
    Worker,
)
from flytekitplugins.kfpytorch.problems import ConfigError, InvalidValue
from flytekitplugins.kfpytorch.quantities import parse_quantity
from flytekitplugins.kfpytorch.retries import RestartSettings
from kfpytorch_common.quantity import parse

CONFIGS = (Elastic, Master, PyTorch, RunPolicy, Worker)
ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text("aZ0:. é", max_size=9))
SAID = st.sampled_from(CONFIGS).flatmap(
    lambda config: st.tuples(
        st.just(config),
        st.fixed_dictionaries({}, optional={field.name: ANYTHING for field in fields(config)}),
    )
)


def refusal(config: Any, **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config(**arguments).check()  # A part of a config raises only when it is checked.
    return caught.value.problems


PLACEMENT = ("node_selector", "tolerations", "pod_template", "priority_class_name")
OF_ROLES = ("resources", "num_retries", *PLACEMENT)
OF_JOBS = ("gang", "train_job")
RUN_POLICY = ("clean_pod_policy", "ttl_seconds_after_finished", "active_deadline_seconds", "backoff_limit")
PYTORCH = {"master": Master(), "worker": Worker(), "run_policy": None, "num_workers": None}
RDZV = {"max_restarts": 0, "rdzv_configs": {"timeout": 900, "join_timeout": 900}}
ELASTIC = {"nnodes": 1, "nproc_per_node": 1, "start_method": "spawn", "monitor_interval": 5, **RDZV}
UPSTREAM: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    (RunPolicy, dict.fromkeys(RUN_POLICY), ()),
    (Master, dict.fromkeys(["image", "requests", "limits", "restart_policy"]), OF_ROLES),
    (Worker, dict.fromkeys(["image", "requests", "limits", "replicas", "restart_policy"]), OF_ROLES),
    (PyTorch, {**PYTORCH, "increase_shared_mem": True}, OF_JOBS),
    (Elastic, {**ELASTIC, "increase_shared_mem": True, "run_policy": None}, OF_JOBS),
]


@pytest.mark.parametrize(("config", "defaults", "added"), UPSTREAM)
def test_fields_are_those_of_upstream_and_others_by_keyword(config, defaults, added) -> None:
    positional = [(each.name, getattr(config(), each.name)) for each in fields(config) if not each.kw_only]
    assert positional == [*defaults.items()]
    assert tuple(each.name for each in fields(config) if each.kw_only) == added
    assert config(*defaults.values(), **dict.fromkeys(added)) == config()


def test_example_of_the_guide_is_accepted() -> None:
    guide = PyTorch(
        master=Master(num_retries=3),
        worker=Worker(replicas=4, resources=Resources(cpu="4", mem="16Gi", gpu="1")),
        run_policy={"clean_pod_policy": "Running", "active_deadline_seconds": 3600},
    )
    assert guide.run_policy == RunPolicy(CleanPodPolicy.RUNNING, active_deadline_seconds=3600)
    asked = Resources(cpu="4", mem="16Gi", gpu="1")
    assert guide.worker.requests_and_limits() == (asked, asked)
    assert guide.restarts() == RestartSettings(RestartPolicy.FAILURE, RestartPolicy.FAILURE, 16)


@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
def test_policy_name_is_accepted_in_any_case(case: Any) -> None:
    for policy in RestartPolicy:
        assert Master(restart_policy=case(policy.name)).restart_policy is policy
    for text in ("OnFailure", "on_failure", "RESTART_POLICY_ON_FAILURE"):
        assert Worker(restart_policy=text).restart_policy is RestartPolicy.FAILURE
    for clean in CleanPodPolicy:
        assert RunPolicy(case(clean.name)).clean_pod_policy is clean
        assert RunPolicy("CLEANPOD_POLICY_" + clean.name).clean_pod_policy is clean


def test_resources_may_be_request_and_limit_pairs_and_the_run_policy_an_empty_dict() -> None:
    assert PyTorch(run_policy={}).run_policy is None
    worker = Worker(resources=Resources(cpu=("1", "2"), mem="4Gi"))
    assert worker.requests_and_limits() == (Resources(cpu="1", mem="4Gi"), Resources(cpu="2", mem="4Gi"))


@given(st.integers(1, 99), st.integers(0, 99), st.sampled_from(["", " "]))
def test_nodes_are_a_number_or_a_range(low: int, more: int, space: str) -> None:
    high = low + more
    assert Elastic(nnodes=low).min_max_nodes() == (low, low)
    assert Elastic(nnodes=f"{low}").min_max_nodes() == (low, low)
    assert Elastic(nnodes=f"{low}{space}:{space}{high}").min_max_nodes() == (low, high)


def test_workers_are_counted_like_upstream_does() -> None:
    counts = {
        (workers, replicas): PyTorch(worker=Worker(replicas=replicas), num_workers=workers).workers()
        for workers, replicas in [(None, None), (None, 0), (None, 3), (0, None), (0, 3), (4, None), (4, 0)]
    }
    assert list(counts.values()) == [None, 0, 3, 0, 3, 4, 4]


ALWAYS, RETRIED, MPI = Worker(restart_policy="always"), Master(num_retries=1), TrainJob(framework="mpi")
POLICY = SuccessPolicy(succeeded_indexes="0-2")
THREE_NODES = TrainJob(success_policy=POLICY)
INDEXES = "train_job.success_policy.succeeded_indexes='0-2'"


COUNTS = {
    Worker: ("replicas", "num_retries"),
    Master: ("num_retries",),
    PyTorch: ("num_workers",),
    RunPolicy: RUN_POLICY[1:],
    Elastic: ("nproc_per_node", "max_restarts"),
}


@pytest.mark.parametrize("value", [-1, True, 1.5, "3", 2**31, float("nan"), [1]])
def test_invalid_count_is_rejected(value: object) -> None:
    for config, names in COUNTS.items():
        for field in names:
            (problem,) = refusal(config, **{field: value})
            assert problem.startswith(f"{field}={value!r}: must be ")


@pytest.mark.parametrize(
    ("config", "arguments", "place"),
    [
        *(
            (Elastic, {"nnodes": value}, f"nnodes={value!r}")
            for value in ("4:1", "1:2:3", "0:2", "2:", 0, True)
        ),
        (Elastic, {"nproc_per_node": "gpus"}, "nproc_per_node='gpus'"),
        (Elastic, {"start_method": "Spawn"}, "start_method='Spawn'"),
        (Elastic, {"monitor_interval": float("inf")}, "monitor_interval=inf"),
        (Elastic, {"rdzv_configs": None}, "rdzv_configs=None"),
        (Elastic, {"rdzv_configs": {3: 4}}, "rdzv_configs[3]=4"),
        (Elastic, {"rdzv_configs": {"join_timeot": 4}}, "rdzv_configs['join_timeot']=4"),
        (Elastic, {"rdzv_configs": {"timeout": "1 h"}}, "rdzv_configs['timeout']='1 h'"),
        (Elastic, {"rdzv_configs": {"endpoint": "a:1"}}, "rdzv_configs['endpoint']='a:1'"),
        (Elastic, {"increase_shared_mem": "false"}, "increase_shared_mem='false'"),
        (PyTorch, {"worker": 4}, "worker=4"),
        (PyTorch, {"master": None}, "master=None"),
        (PyTorch, {"run_policy": "Running"}, "run_policy='Running'"),
        (PyTorch, {"run_policy": {"clean_pod_polcy": "All"}}, "run_policy.clean_pod_polcy='All'"),
        (RunPolicy, {"clean_pod_policy": "runing"}, "clean_pod_policy='runing'"),
        (Worker, {"restart_policy": 1}, "restart_policy=1"),
        (Worker, {"image": 3}, "image=3"),
        (Worker, {"requests": {"cpu": "1"}}, "requests={'cpu'"),
        (Worker, {"limits": Resources(mem=("1Gi", "2Gi"))}, "limits.mem=('1Gi', '2Gi')"),
        (Worker, {"requests": Resources(mem="16Gib")}, "requests.mem='16Gib'"),
        (Worker, {"requests": Resources(cpu="-1")}, "requests.cpu='-1'"),
        (Worker, {"requests": Resources(gpu="0.5")}, "requests.gpu='0.5'"),
        # Fields that conflict.
        (Worker, {"requests": Resources(gpu="2"), "limits": Resources(gpu="1")}, "requests.gpu='2'"),
        (Worker, {"resources": Resources(gpu=("2", "1"))}, "resources.gpu='2'"),
        (Master, {"num_retries": 2, "restart_policy": "never"}, "num_retries=2"),
        (Master, {"num_retries": 0, "restart_policy": "failure"}, "num_retries=0"),
        (Master, {"num_retries": 1, "restart_policy": "always"}, "num_retries=1"),
        (PyTorch, {"num_workers": 2, "worker": Worker(replicas=3)}, "num_workers=2"),
        (PyTorch, {"master": RETRIED, "run_policy": {"backoff_limit": 3}}, "run_policy.backoff_limit=3"),
        (PyTorch, {"master": RETRIED, "worker": ALWAYS}, "worker.restart_policy=<RestartPolicy.ALWAYS"),
        (PyTorch, {"worker": Worker(replicas=1), "gang": Gang(min_member=9)}, "gang.min_member=9"),
        (Elastic, {"nnodes": "2:4", "gang": Gang(min_member=5)}, "gang.min_member=5"),
        (Elastic, {"nnodes": "2:4", "gang": Gang(min_member=1)}, "gang.min_member=1"),
        (PyTorch, {"num_workers": 3, "gang": Gang(min_member=3), "train_job": MPI}, "gang.min_member=3"),
        (PyTorch, {"gang": "a"}, "gang='a'"),
        (PyTorch, {"num_workers": 1, "train_job": THREE_NODES}, INDEXES),
        (Elastic, {"nnodes": 4, "train_job": THREE_NODES}, f"train_job.success_policy={POLICY!r}"),
    ],
)
def test_invalid_or_conflicting_value_is_reported_with_its_field(config, arguments, place) -> None:
    assert [problem.partition(": ")[0] for problem in refusal(config, **arguments)] == [place]


@pytest.mark.parametrize(
    "config",
    [
        PyTorch(gang=Gang(min_member=9)),  # The author may set num_workers later.
        PyTorch(num_workers=1, gang=Gang(min_member=2)),
        PyTorch(num_workers=3, gang=Gang(min_member=4), train_job=MPI),
        PyTorch(num_workers=3, gang=Gang(min_member=3), train_job=TrainJob(framework="jax")),
        Elastic(nnodes="2:4", gang=Gang(min_member=4)),
        Elastic(nnodes=1, gang=Gang(min_member=1)),
        *(Elastic(nproc_per_node=word) for word in ("auto", "gpu", "cpu")),
        # The published plugin accepts these, too.
        PyTorch(increase_shared_mem=None),  # type: ignore[arg-type]
        PyTorch(worker=Worker(requests=Resources(cpu="2"), limits=Resources(cpu="1"))),
    ],
)
def test_consistent_config_is_accepted(config: Any) -> None:
    assert config.problems() == []


def test_resources_set_twice_are_rejected() -> None:
    for name in ("requests", "limits"):
        (problem,) = refusal(Worker, resources=Resources(cpu="2"), **{name: Resources(cpu="2")})
        assert problem.endswith(f"sets the same as {name}=; leave one or the other out")


def test_number_is_parsed_like_a_text_and_an_invalid_quantity_rejected() -> None:
    for value, text in ((2, "2"), (0.5, "500m"), (1e-7, "100n"), (1e20, "100E"), ("1.5Gi", "1536Mi")):
        assert parse_quantity(value) == parse(text)
    for invalid in ("1 Gi", True, None, [1], float("nan")):
        with pytest.raises(InvalidValue, match="as Kubernetes writes it"):
            parse_quantity(invalid)


def test_all_problems_are_reported_together() -> None:
    policy = {"backoff_limit": -1, "tll_seconds_after_finished": 3, "problems": 1}
    with pytest.raises(ValueError, match="PyTorch: 5 problems") as caught:
        PyTorch(worker=None, run_policy=policy, increase_shared_mem="no")
    assert str(caught.value).splitlines() == [
        "PyTorch: 5 problems",
        "  worker=None: must be Worker(...)",
        "  run_policy.backoff_limit=-1: must be a whole number of at least 0",
        "  run_policy.tll_seconds_after_finished=3: RunPolicy has no such field; "
        "did you mean 'ttl_seconds_after_finished'?",
        "  run_policy.problems=1: RunPolicy has no such field",
        "  increase_shared_mem='no': must be True or False",
    ]


def test_config_error_is_short_and_survives_pickling() -> None:
    (problem,) = refusal(Worker, image=list(range(1000)))
    assert len(problem) < 150
    error = ConfigError("Worker", ["a", "b"])
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "Worker: 2 problems\n  a\n  b"


def test_changed_config_is_checked_again() -> None:
    config = PyTorch()
    config.worker.replica = 3
    config.run_policy = {"clean_pod_policy": "all"}
    message = r"worker.replica=3: Worker has no such .* did you mean 'replicas'\?"
    with pytest.raises(ConfigError, match=message):
        config.check()
    assert config.run_policy == RunPolicy(CleanPodPolicy.ALL)


def test_signature_of_a_config_has_the_types_without_their_readers() -> None:
    assert [config for config in CONFIGS if "Annotated" in str(inspect.signature(config))] == []


def test_config_class_of_a_user_may_have_own_fields_and_further_base_classes() -> None:
    class Registered:
        def __init_subclass__(cls, key: str) -> None:
            cls.key = key

    @dataclass
    class Own(Elastic, Registered, key="own"):
        epochs: Annotated[int, "the number of epochs"] = 3

    assert (Own(epochs=4).epochs, Own.key) == (4, "own")  # type: ignore[attr-defined]
    assert refusal(Own, nnodes=0)[0].startswith("nnodes=0")


@given(SAID)
def test_config_is_rejected_or_unchanged_by_its_check(wanted: tuple[Any, dict[str, Any]]) -> None:
    config, arguments = wanted
    try:
        constructed = config(**arguments)
        before = copy.deepcopy(constructed)
        constructed.check()
    except ConfigError as refused:
        named = {problem.partition("=")[0] for problem in refused.problems}
    else:
        named = set()
        assert constructed == before
    assert named <= set(arguments)
