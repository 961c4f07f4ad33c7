"""Fields beyond upstream's config: encoding, decoding and validation."""

from functools import partial
from typing import Any

import pytest
from flytekit import PodTemplate
from kubernetes.client import V1Container, V1PodSpec, V1Toleration

from flytekitplugins.kfpytorch import (
    Elastic,
    Gang,
    Master,
    PodFailurePolicyRule,
    PyTorch,
    SuccessPolicy,
    Topology,
    TrainJob,
    Worker,
)
from flytekitplugins.kfpytorch.custom import encode_elastic, encode_pytorch
from flytekitplugins.kfpytorch.custom import encode_extension as encode
from flytekitplugins.kfpytorch.problems import ConfigError

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


def test_empty_extension_is_not_encoded() -> None:
    assert encode(PyTorch(worker=Worker(replicas=2))) == {} == encode(Elastic(nnodes=2))
    assert "kfpytorch" not in {**encode_pytorch(PyTorch(num_workers=1)), **encode_elastic(Elastic(nnodes=2))}


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


counted = partial(PodFailurePolicyRule, action="Count")


def succeeded(indexes: str) -> Any:
    return partial(SuccessPolicy, succeeded_indexes=indexes)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Gang(min_member=0), "Gang: min_member=0: must be a whole number of at least 1"),
        (lambda: Gang(queue=""), "Gang: queue='': must be a name as text"),
        (lambda: PyTorch(gang={"queue": "a"}), "PyTorch: gang={'queue': 'a'}: must be Gang(...)"),
        (
            lambda: TrainJob(runtime_kind="Runtime"),
            "TrainJob: runtime_kind='Runtime': must be 'ClusterTrainingRuntime' or 'TrainingRuntime'",
        ),
        (lambda: Topology(level="a b"), "level='a b': must be the name of a label"),
        (lambda: Topology(level="a", mode="strict"), "mode='strict': must be 'exclusive' or 'required' or"),
        (lambda: TrainJob(topology="rack"), "topology='rack': must be Topology(...)"),
        (lambda: TrainJob(runtime="Torch"), "runtime='Torch': must be the name of a runtime"),
        (lambda: TrainJob(packages="einops"), "packages='einops': must be a list of requirements"),
        (lambda: TrainJob(packages=["a", "--pre"]), "packages[1]='--pre': must be a requirement such as"),
        (lambda: TrainJob(packages=[1]), "packages[0]=1: must be a requirement such as"),
        (succeeded("0,0"), "succeeded_indexes='0,0': must be increasing numbers"),
        (succeeded("3-1"), "succeeded_indexes='3-1': must be increasing numbers"),
        (succeeded("1"), "succeeded_indexes='1': must contain 0"),
        (
            lambda: PyTorch(num_workers=1, train_job=TrainJob(success_policy=succeeded("0-2")())),
            "train_job.success_policy.succeeded_indexes='0-2': the task has 2 nodes",
        ),
        (
            lambda: Elastic(nnodes=2, train_job=TrainJob(success_policy=SuccessPolicy())),
            "train_job.success_policy=",
        ),
        (
            lambda: TrainJob(pod_failure_policy=[PodFailurePolicyRule(action="FailJob")]),
            "pod_failure_policy[0].exit_codes=None: set either",
        ),
        (lambda: TrainJob(pod_failure_policy=["FailJob"]), "pod_failure_policy[0]='FailJob': must be Pod"),
        (lambda: TrainJob(pod_failure_policy="FailJob"), "pod_failure_policy='FailJob': must be a list"),
        (lambda: TrainJob(pod_failure_policy=20 * [FAIL_42]), "must have at most 19 rules"),
        (
            lambda: PodFailurePolicyRule(action="FailIndex", exit_codes=[1]),
            "action='FailIndex': must be 'FailJob'",
        ),
        (lambda: counted(exit_codes=[0]), "exit_codes=[0]: must be exit codes from 1"),
        (lambda: counted(exit_codes=[]), "exit_codes=[]: must be a list of exit"),
        (lambda: counted(pod_conditions={"DisruptionTarget": "True"}), "must not contain DisruptionTarget"),
        (lambda: counted(pod_conditions={"Moved": "yes"}), "must have a status of True or False or Unknown"),
        (lambda: counted(pod_conditions={}), "must be a dict of conditions"),
        (
            lambda: Worker(tolerations=[{"keys": "gpu"}]),
            "Worker: tolerations[0].keys='gpu': a toleration has no such key; did you mean 'key'?",
        ),
        (lambda: Worker(tolerations="gpu"), "must be a list of tolerations"),
        (lambda: Worker(tolerations=["gpu"]), "Worker: tolerations[0]='gpu': must be a dict such as"),
        (
            lambda: Worker(tolerations=[{"key": 3, "tolerationSeconds": 1.5, "value": None}]),
            "tolerations[0].key=3: must be text\n"
            "  tolerations[0].tolerationSeconds=1.5: must be a whole number",
        ),
        (
            lambda: Worker(tolerations=[{"operator": "Exist", "effect": "NoSchedul"}]),
            "tolerations[0].operator='Exist': must be 'Exists' or 'Equal'\n"
            "  tolerations[0].effect='NoSchedul': must be 'NoSchedule' or 'PreferNoSchedule' or 'NoExecute'",
        ),
        (
            lambda: Worker(tolerations=[{"tolerationSeconds": 1, "toleration_seconds": 2}]),
            "sets tolerationSeconds twice; leave one out",
        ),
        (lambda: Worker(tolerations=[V1Container(name="c")]), "tolerations[0].name='c': a toleration has no"),
        (
            lambda: Worker(pod_template={"spec": {"a": [{1}, {"b": float("nan")}]}, "metadata": {2: "c"}}),
            "Worker: 3 problems\n"
            "  pod_template.spec.a[0]={1}: must be text, a number, a list or a dict, as in a manifest\n"
            "  pod_template.spec.a[1].b=nan: must be text, a number, a list or a dict, as in a manifest\n"
            "  pod_template.metadata=2: a key must be text",
        ),
        (
            lambda: Worker(pod_template=PodTemplate({"containers": [{"name": b"c"}]})),
            "pod_template.pod_spec.containers[0].name=b'c': must be text",
        ),
        (lambda: Master(node_selector={"a": 1}), "node_selector['a']=1: a label and its value must be text"),
        (lambda: Master(node_selector=["a"]), "must be a dict of labels"),
        (lambda: Master(node_selector={"a b": "c"}), "node_selector['a b']='c': the name of a label is at"),
        (lambda: Master(node_selector={"a": "b c"}), "node_selector['a']='b c': the value of a label is at"),
        (
            lambda: Worker(priority_class_name="High"),
            "priority_class_name='High': must be the name of a Prio",
        ),
        (lambda: Gang(priority_class_name=""), "priority_class_name='': must be the name of a PriorityClass"),
        (lambda: Master(pod_template={"containers": []}), "must be a PodTemplate, or a dict with 'metadata'"),
    ],
)
def test_invalid_config_is_rejected(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make().check()
    assert problem in str(caught.value)
