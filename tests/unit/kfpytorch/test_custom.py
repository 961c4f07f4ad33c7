from typing import Any

import pytest
from flytekit import PodTemplate, Resources
from kubernetes.client import V1Container, V1PodSpec, V1Toleration

import flytekitplugins.kfpytorch as kf
from flytekitplugins.kfpytorch.custom import encode_elastic, encode_pytorch, iter_ineffective_settings
from flytekitplugins.kfpytorch.custom import encode_extension as encode

FAIL_42 = kf.PodFailurePolicyRule(action="FailJob", exit_codes=[42])
FULL_TRAIN_JOB = kf.TrainJob(
    runtime="mine",
    runtime_kind="TrainingRuntime",
    max_restarts=2,
    topology=kf.Topology(level="zone", mode="preferred"),
    success_policy=kf.SuccessPolicy(succeeded_indexes="0-1"),
    pod_failure_policy=[FAIL_42, kf.PodFailurePolicyRule(action="Ignore", pod_conditions={"Moved": "True"})],
    packages=["einops>=0.8"],
)


def test_all_options_of_a_train_job_are_encoded() -> None:
    [written] = encode(kf.PyTorch(worker=kf.Worker(replicas=1), train_job=FULL_TRAIN_JOB)).values()
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
    role = kf.Worker(
        replicas=1, pod_template=template, tolerations=[V1Toleration(key="k", toleration_seconds=5)]
    )
    assert encode(kf.PyTorch(worker=role))["kfpytorch"]["worker"] == {
        "podTemplate": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "primary", "imagePullPolicy": "Always"}]},
        },
        "tolerations": [{"key": "k", "tolerationSeconds": "5"}],
    }


def fail_pods(**options: Any) -> kf.PodFailurePolicyRule:
    return kf.PodFailurePolicyRule(action="Count", **options)


class Array:
    """As an array of numpy with several items, this has no truth value."""

    def __bool__(self) -> bool:
        raise ValueError


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        (kf.Gang(min_member=0), ["min_member"]),
        (kf.Gang(queue="", priority_class_name=""), ["queue", "priority_class_name"]),
        (kf.TrainJob(runtime_kind="Runtime", runtime="Torch"), ["runtime", "runtime_kind"]),
        (kf.Topology(level="a b", mode="strict"), ["level", "mode"]),
        (kf.TrainJob(topology="rack"), ["topology"]),
        (kf.TrainJob(packages="einops"), ["packages"]),
        (kf.TrainJob(packages=["a", "--pre", 1]), ["packages[1]", "packages[2]"]),
        (kf.SuccessPolicy(succeeded_indexes="0,0"), ["succeeded_indexes"]),
        (kf.SuccessPolicy(succeeded_indexes="3-1"), ["succeeded_indexes"]),
        (kf.SuccessPolicy(succeeded_indexes="1"), ["succeeded_indexes"]),
        (kf.TrainJob(pod_failure_policy=[fail_pods()]), ["pod_failure_policy[0].exit_codes"]),
        (kf.TrainJob(pod_failure_policy=["FailJob"]), ["pod_failure_policy[0]"]),
        (kf.TrainJob(pod_failure_policy="FailJob"), ["pod_failure_policy"]),
        (kf.PodFailurePolicyRule(action="FailIndex", exit_codes=[1]), ["action"]),
        (fail_pods(exit_codes=[0]), ["exit_codes"]),
        (fail_pods(exit_codes=[True]), ["exit_codes"]),
        (fail_pods(exit_codes=[]), ["exit_codes"]),
        (fail_pods(exit_codes=Array()), ["exit_codes"]),
        (fail_pods(pod_conditions={"DisruptionTarget": "True"}), ["pod_conditions['DisruptionTarget']"]),
        (fail_pods(pod_conditions={"Moved": "yes"}), ["pod_conditions['Moved']"]),
        (fail_pods(pod_conditions={}), ["exit_codes"]),
        (kf.Worker(tolerations="gpu"), ["tolerations"]),
        (kf.Worker(tolerations=["gpu"]), ["tolerations[0]"]),
        (kf.Worker(tolerations=[{"keys": "gpu"}]), ["tolerations[0]['keys']"]),
        (kf.Worker(tolerations=[{"key": 3, "value": None}]), ["tolerations[0]['key']"]),
        (kf.Worker(tolerations=[{"tolerationSeconds": 1.5}]), ["tolerations[0]['tolerationSeconds']"]),
        (kf.Worker(tolerations=[{"tolerationSeconds": 1, "toleration_seconds": 1}]), ["tolerations[0]"]),
        (kf.Worker(tolerations=[{"operator": "Exist"}]), ["tolerations[0]['operator']"]),
        (kf.Worker(tolerations=[{"effect": "NoSchedul"}]), ["tolerations[0]['effect']"]),
        (kf.Worker(tolerations=[V1Container(name="c")]), ["tolerations[0]['name']"]),
        (kf.Worker(pod_template={"spec": {"a": float("nan")}}), ["pod_template"]),
        (kf.Worker(pod_template={"metadata": {2: "c"}}), ["pod_template"]),
        (kf.Worker(pod_template=PodTemplate({"containers": [{"name": b"c"}]})), ["pod_template"]),
        (kf.Master(pod_template={"containers": []}), ["pod_template"]),
        (kf.Master(node_selector={"a": 1}), ["node_selector['a']"]),
        (kf.Master(node_selector=["a"]), ["node_selector"]),
        (kf.Master(node_selector={"a b": "c"}), ["node_selector['a b']"]),
        (kf.Master(node_selector={"a": "b c"}), ["node_selector['a']"]),
        (kf.Worker(priority_class_name="High"), ["priority_class_name"]),
    ],
)
def test_invalid_value_is_reported_with_its_path(config: Any, paths: list[str]) -> None:
    assert [problem.path for problem in config.problems()] == paths


def test_invalid_value_of_a_pod_template_is_reported_with_its_place() -> None:
    [problem] = kf.Worker(pod_template={"spec": {"a": [{1}]}}).problems()
    assert (problem.path, "spec.a[0]" in problem.remedy) == ("pod_template", True)


def test_config_without_options_is_encoded_without_them() -> None:
    encoded = {**encode_pytorch(kf.PyTorch(num_workers=1)), **encode_elastic(kf.Elastic(nnodes=2))}
    assert {"runPolicy", "kfpytorch"}.isdisjoint(encoded)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (kf.PyTorch(), []),
        (kf.PyTorch(run_policy=kf.RunPolicy(active_deadline_seconds=1)), []),
        (kf.PyTorch(run_policy={"backoff_limit": 0}), ["run_policy.backoff_limit=0 has no effect"]),
        (
            kf.PyTorch(worker=kf.Worker(resources=Resources(mem=("2Gi", "1G")))),
            ["worker.resources.mem='2Gi'"],
        ),
        (
            kf.PyTorch(kf.Master(requests=Resources(cpu=2), limits=Resources(cpu=1))),
            ["master.requests.cpu=2"],
        ),
        (kf.Elastic(nnodes=2, run_policy={"backoff_limit": 1}), []),
        (kf.Elastic(nnodes=1, run_policy={"backoff_limit": 1}), ["run_policy= has no effect with nnodes=1"]),
    ],
)
def test_ineffective_setting_is_named(config: kf.PyTorch | kf.Elastic, expected: list[str]) -> None:
    assert [sentence.partition(":")[0] for sentence in iter_ineffective_settings(config)] == expected


def test_retries_of_each_role_are_encoded_for_a_train_job_and_the_config_is_unchanged() -> None:
    config, same = (
        kf.PyTorch(kf.Master(num_retries=3), kf.Worker(replicas=1), {"backoff_limit": None}) for _ in range(2)
    )
    assert encode_pytorch(config)["kfpytorch"] == {"version": 1, "master": {"numRetries": 3}}
    assert config == same
