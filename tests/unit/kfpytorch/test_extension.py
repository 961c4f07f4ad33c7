"""Fields beyond upstream's config: encoding, decoding and validation."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from flytekit import PodTemplate
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st
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
from flytekitplugins.kfpytorch.extension_wire import decode, encode
from flytekitplugins.kfpytorch.problems import ConfigError
from kfpytorch_common.labels import is_key, is_subdomain

NAMES = st.text("aZ0-./é", min_size=1)
LABELS = st.from_regex(r"([a-z0-9.]{1,9}/)?[a-zA-Z0-9]([-_.a-z]{0,9}[a-z])?", fullmatch=True).filter(is_key)
CLASSES = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,9}[a-z0-9])?", fullmatch=True).filter(is_subdomain)
FAIL_42 = PodFailurePolicyRule(action="FailJob", exit_codes=[42])
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
SECONDS = st.integers(1, 2**31 - 1)
ROLES = st.fixed_dictionaries(
    {},
    optional={
        "node_selector": st.dictionaries(LABELS, st.text("aZ0", max_size=63)).filter(bool),
        "tolerations": st.lists(
            st.fixed_dictionaries({"key": NAMES}, optional={"effect": EFFECTS, "tolerationSeconds": SECONDS}),
            min_size=1,
        ),
        "pod_template": st.fixed_dictionaries(
            {"spec": st.dictionaries(NAMES, st.booleans() | NAMES | st.lists(NAMES))}
        ),
        "priority_class_name": CLASSES,
    },
)
GANGS = st.none() | st.builds(
    Gang,
    scheduler=st.none() | NAMES,
    queue=st.none() | NAMES,
    min_member=st.none() | st.just(2),
    queue_timeout_seconds=st.none() | SECONDS,
)
CODES = st.lists(st.integers(1, 255), min_size=1, unique=True).map(sorted)
RULES = st.builds(
    PodFailurePolicyRule,
    action=st.sampled_from(["FailJob", "Ignore", "Count"]),
    exit_codes=CODES,
    operator=st.sampled_from(["In", "NotIn"]),
) | st.builds(PodFailurePolicyRule, action=st.just("Ignore"), pod_conditions=st.just({"Moved": "True"}))
TRAIN_JOBS = st.none() | st.builds(
    TrainJob,
    runtime=st.none() | CLASSES,
    runtime_kind=st.sampled_from([None, "TrainingRuntime"]),
    max_restarts=st.none() | st.integers(0, 2**31 - 1),
    topology=st.none() | st.builds(Topology, level=LABELS, mode=st.sampled_from([None, "preferred"])),
    pod_failure_policy=st.none() | st.lists(RULES, min_size=1, max_size=3),
    packages=st.none()
    | st.lists(st.sampled_from(["einops>=0.8", "trl[peft]; python_version>'3'"]), min_size=1),
    framework=st.sampled_from(["torch", "jax"]),
)


def travelled(written: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping after its way through a task template, which makes every number a double."""
    struct = ParseDict(json.loads(json.dumps(written)), Struct())
    return MessageToDict(struct)


@given(ROLES, ROLES, GANGS, TRAIN_JOBS)
def test_extension_is_equal_after_encoding_and_decoding(
    master: dict[str, Any], worker: dict[str, Any], gang: Gang | None, train_job: TrainJob | None
) -> None:
    elastic = Elastic(nnodes=2, gang=gang, train_job=train_job)
    of_elastic = {
        key: value for key, value in (("gang", gang), ("train_job", train_job)) if value is not None
    }
    assert decode(travelled(encode(elastic))) == of_elastic
    if train_job is not None:
        train_job = replace(train_job, success_policy=SuccessPolicy(succeeded_indexes="0-1"))
    config = PyTorch(Master(**master), Worker(replicas=1, **worker), gang=gang, train_job=train_job)
    parts = {"master": master or None, "worker": worker or None, "gang": gang, "train_job": train_job}
    assert decode(travelled(encode(config))) == {k: value for k, value in parts.items() if value is not None}


def test_empty_extension_is_not_encoded() -> None:
    assert encode(PyTorch(worker=Worker(replicas=2))) == {} == encode(Elastic(nnodes=2))
    assert "kfpytorch" not in {**encode_pytorch(PyTorch(num_workers=1)), **encode_elastic(Elastic(nnodes=2))}


def test_extension_key_is_added_to_the_fields_of_flyte() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    config = PyTorch(
        Master(node_selector={"pool": "cpu"}),
        Worker(replicas=2, tolerations=[toleration], priority_class_name="high"),
        gang=Gang(queue="research", queue_timeout_seconds=3600),
    )
    assert encode_pytorch(config) == {
        **encode_pytorch(PyTorch(worker=Worker(replicas=2))),
        "kfpytorch": {
            "version": 1,
            "master": {"nodeSelector": {"pool": "cpu"}},
            "worker": {"tolerations": [toleration], "priorityClassName": "high"},
            "gang": {"queue": "research", "queueTimeoutSeconds": "3600"},
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


counted = partial(PodFailurePolicyRule, action="Count")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Gang(min_member=0), "Gang: min_member=0: must be a whole number of at least 1"),
        (lambda: Gang(queue=""), "Gang: queue='': must be a name as text"),
        (lambda: PyTorch(gang={"queue": "a"}), "PyTorch: gang={'queue': 'a'}: must be Gang(...)"),
        (
            lambda: TrainJob(runtime_kind="Runtime"),
            "TrainJob: runtime_kind='Runtime': must be 'ClusterTrainingRuntime' or 'TrainingRuntime'"
            "; did you mean 'TrainingRuntime'?",
        ),
        (lambda: Topology(level="a b"), "level='a b': must be the name of a label"),
        (lambda: Topology(level="a", mode="strict"), "mode='strict': must be 'exclusive' or 'required' or"),
        (lambda: TrainJob(topology="rack"), "topology='rack': must be Topology(...)"),
        (lambda: TrainJob(runtime="Torch"), "runtime='Torch': must be the name of a runtime"),
        (lambda: TrainJob(packages="einops"), "packages='einops': must be a list of requirements"),
        (lambda: TrainJob(packages=["a", "--pre"]), "packages[1]='--pre': must be a requirement such as"),
        (lambda: TrainJob(packages=[1]), "packages[0]=1: must be a requirement such as"),
        (
            lambda: SuccessPolicy(succeeded_indexes="0,0"),
            "succeeded_indexes='0,0': must be increasing numbers",
        ),
        (
            lambda: SuccessPolicy(succeeded_indexes="3-1"),
            "succeeded_indexes='3-1': must be increasing numbers",
        ),
        (lambda: SuccessPolicy(succeeded_indexes="1"), "succeeded_indexes='1': must contain 0"),
        (
            lambda: PyTorch(
                num_workers=1, train_job=TrainJob(success_policy=SuccessPolicy(succeeded_indexes="0-2"))
            ),
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
            "tolerations[0].operator='Exist': must be 'Exists' or 'Equal'; did you mean 'Exists'?\n"
            "  tolerations[0].effect='NoSchedul': must be 'NoSchedule' or 'PreferNoSchedule' or 'NoExecute'"
            "; did you mean 'NoSchedule'?",
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
