from typing import Any

import pytest
from flytekit import PodTemplate, Resources
from kubernetes.client import V1Container, V1PodSpec, V1Toleration

from flytekitplugins.kfpytorch import (
    Elastic,
    Gang,
    Master,
    PodFailurePolicyRule,
    PyTorch,
    RunPolicy,
    SuccessPolicy,
    Topology,
    TrainJob,
    Worker,
)
from flytekitplugins.kfpytorch.custom import encode_elastic, encode_pytorch, iter_ineffective_settings
from flytekitplugins.kfpytorch.custom import encode_extension as encode

FAIL_42 = PodFailurePolicyRule(action="FailJob", exit_codes=[42])
FULL_TRAIN_JOB = TrainJob(
    runtime="mine",
    runtime_kind="TrainingRuntime",
    max_restarts=2,
    topology=Topology(level="zone", mode="preferred"),
    success_policy=SuccessPolicy(succeeded_indexes="0-1"),
    pod_failure_policy=[FAIL_42, PodFailurePolicyRule(action="Ignore", pod_conditions={"Moved": "True"})],
    packages=["einops>=0.8"],
)


def test_all_options_of_a_train_job_are_encoded() -> None:
    [written] = encode(PyTorch(worker=Worker(replicas=1), train_job=FULL_TRAIN_JOB)).values()
    assert written == {
        "version": 1,
        "trainJob": {
            "runtime": "mine",
            "runtimeKind": "TrainingRuntime",
            "maxRestarts": 2,
            "topology": {"level": "zone", "mode": "preferred"},
            "successPolicy": {"succeededIndexes": "0-1"},
            "podFailurePolicy": [
                {"action": "FailJob", "exitCodes": [42], "operator": "In"},
                {"action": "Ignore", "operator": "In", "podConditions": {"Moved": "True"}},
            ],
            "packages": ["einops>=0.8"],
            "framework": "torch",
        },
    }


def test_kubernetes_models_are_encoded_like_in_a_manifest() -> None:
    template = PodTemplate(
        V1PodSpec(containers=[V1Container(name="primary", image_pull_policy="Always")]), labels={"a": "b"}
    )
    role = Worker(
        replicas=1, pod_template=template, tolerations=[V1Toleration(key="k", toleration_seconds=5)]
    )
    assert encode(PyTorch(worker=role))["kfpytorch"]["worker"] == {
        "podTemplate": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "primary", "imagePullPolicy": "Always"}]},
        },
        "tolerations": [{"key": "k", "tolerationSeconds": "5"}],
    }


def fail_pods(**options: Any) -> PodFailurePolicyRule:
    return PodFailurePolicyRule(action="Count", **options)


class Array:
    """As an array of numpy with several items, this has no truth value."""

    def __bool__(self) -> bool:
        raise ValueError


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        (Gang(min_member=0), ["min_member"]),
        (Gang(queue="", priority_class_name=""), ["queue", "priority_class_name"]),
        (TrainJob(runtime_kind="Runtime", runtime="Torch"), ["runtime", "runtime_kind"]),
        (Topology(level="a b", mode="strict"), ["level", "mode"]),
        (TrainJob(topology="rack"), ["topology"]),
        (TrainJob(packages="einops"), ["packages"]),
        (TrainJob(packages=["a", "--pre", 1]), ["packages[1]", "packages[2]"]),
        (SuccessPolicy(succeeded_indexes="0,0"), ["succeeded_indexes"]),
        (SuccessPolicy(succeeded_indexes="3-1"), ["succeeded_indexes"]),
        (SuccessPolicy(succeeded_indexes="1"), ["succeeded_indexes"]),
        (TrainJob(pod_failure_policy=[fail_pods()]), ["pod_failure_policy[0].exit_codes"]),
        (TrainJob(pod_failure_policy=["FailJob"]), ["pod_failure_policy[0]"]),
        (TrainJob(pod_failure_policy="FailJob"), ["pod_failure_policy"]),
        (PodFailurePolicyRule(action="FailIndex", exit_codes=[1]), ["action"]),
        (fail_pods(exit_codes=[0]), ["exit_codes"]),
        (fail_pods(exit_codes=[True]), ["exit_codes"]),
        (fail_pods(exit_codes=[]), ["exit_codes"]),
        (fail_pods(exit_codes=Array()), ["exit_codes"]),
        (fail_pods(pod_conditions={"DisruptionTarget": "True"}), ["pod_conditions['DisruptionTarget']"]),
        (fail_pods(pod_conditions={"Moved": "yes"}), ["pod_conditions['Moved']"]),
        (fail_pods(pod_conditions={}), ["exit_codes"]),
        (Worker(tolerations="gpu"), ["tolerations"]),
        (Worker(tolerations=["gpu"]), ["tolerations[0]"]),
        (Worker(tolerations=[{"keys": "gpu"}]), ["tolerations[0]['keys']"]),
        (Worker(tolerations=[{"key": 3, "value": None}]), ["tolerations[0]['key']"]),
        (Worker(tolerations=[{"tolerationSeconds": 1.5}]), ["tolerations[0]['tolerationSeconds']"]),
        (Worker(tolerations=[{"tolerationSeconds": 1, "toleration_seconds": 1}]), ["tolerations[0]"]),
        (Worker(tolerations=[{"operator": "Exist"}]), ["tolerations[0]['operator']"]),
        (Worker(tolerations=[{"effect": "NoSchedul"}]), ["tolerations[0]['effect']"]),
        (Worker(tolerations=[V1Container(name="c")]), ["tolerations[0]['name']"]),
        (Worker(pod_template={"spec": {"a": float("nan")}}), ["pod_template"]),
        (Worker(pod_template={"metadata": {2: "c"}}), ["pod_template"]),
        (Worker(pod_template=PodTemplate({"containers": [{"name": b"c"}]})), ["pod_template"]),
        (Master(pod_template={"containers": []}), ["pod_template"]),
        (Master(node_selector={"a": 1}), ["node_selector['a']"]),
        (Master(node_selector=["a"]), ["node_selector"]),
        (Master(node_selector={"a b": "c"}), ["node_selector['a b']"]),
        (Master(node_selector={"a": "b c"}), ["node_selector['a']"]),
        (Worker(priority_class_name="High"), ["priority_class_name"]),
    ],
)
def test_invalid_value_is_reported_with_its_path(config: Any, paths: list[str]) -> None:
    assert [problem.path for problem in config.problems()] == paths


def test_invalid_value_of_a_pod_template_is_reported_with_its_place() -> None:
    [problem] = Worker(pod_template={"spec": {"a": [{1}]}}).problems()
    assert (problem.path, "spec.a[0]" in problem.remedy) == ("pod_template", True)


def test_config_without_options_is_encoded_without_them() -> None:
    encoded = {**encode_pytorch(PyTorch(num_workers=1)), **encode_elastic(Elastic(nnodes=2))}
    assert {"runPolicy", "kfpytorch"}.isdisjoint(encoded)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (PyTorch(), []),
        (PyTorch(run_policy=RunPolicy(active_deadline_seconds=1)), []),
        (PyTorch(run_policy={"backoff_limit": 0}), ["run_policy.backoff_limit=0 has no effect"]),
        (PyTorch(worker=Worker(resources=Resources(mem=("2Gi", "1G")))), ["worker.resources.mem='2Gi'"]),
        (PyTorch(Master(requests=Resources(cpu=2), limits=Resources(cpu=1))), ["master.requests.cpu=2"]),
        (Elastic(nnodes=2, run_policy={"backoff_limit": 1}), []),
        (Elastic(nnodes=1, run_policy={"backoff_limit": 1}), ["run_policy= has no effect with nnodes=1"]),
    ],
)
def test_ineffective_setting_is_named(config: PyTorch | Elastic, expected: list[str]) -> None:
    assert [sentence.partition(":")[0] for sentence in iter_ineffective_settings(config)] == expected


def test_retries_of_each_role_are_encoded_for_a_train_job_and_the_config_is_unchanged() -> None:
    config, same = (
        PyTorch(Master(num_retries=3), Worker(replicas=1), {"backoff_limit": None}) for _ in range(2)
    )
    assert encode_pytorch(config)["kfpytorch"] == {"version": 1, "master": {"numRetries": 3}}
    assert config == same
