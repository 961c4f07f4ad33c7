"""Tests of the TrainJob of a task, its TrainingRuntime, and the environment of its nodes."""

import json

import pytest
from builders import decoded, reject
from train_job_objects import ELASTIC, REPLICAS, get_jobset, get_train_job_options, plan_train_job

from backend_plugin.core import names
from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.trainjob import folding
from backend_plugin.core.scheduling import gang_annotation

INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
RETRIES = {"trainJob": {"maxRestarts": 4}, "worker": {"numRetries": 3}}
RETRIED = {**REPLICAS, "workerReplicas": {"replicas": 2, "restartPolicy": "RESTART_POLICY_ALWAYS"}}
BACKOFF = {"runPolicy": {"backoffLimit": 4}}
FIXED = {**ELASTIC, "elasticConfig": {**ELASTIC["elasticConfig"], "minReplicas": 4}}
JAX = {"kfpytorch": {"version": 1, "trainJob": {"framework": "jax"}}}
LABELLED = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": []}}
WORKING = {"spec": {"containers": [{"name": "primary", "workingDir": "/v"}]}}
OWN_VOLUMES = {"volumes": [{"name": "mpi-hostfile", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}
OWN_MOUNTS = [{"name": "v", "mountPath": path} for path in ("/v", "/etc/mpi", "/etc/kfpytorch/ssh/")]
OWN_VARIABLES = [
    {"name": "OMPI_MCA_btl_tcp_if_include", "value": "eth0"},
    {"name": "OMPI_MCA_orte_default_hostfile", "value": "/hosts"},
]


def get_pod(custom, **fields):
    (replicated,) = get_jobset(plan_train_job(custom, **fields))["replicatedJobs"]
    return replicated["template"]["spec"]["template"]


def get_environment(custom, **fields):
    (container,) = get_pod(custom, **fields)["spec"]["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


@pytest.mark.parametrize(
    ("custom", "restarts"),
    [
        (REPLICAS, 0),
        ({**REPLICAS, **BACKOFF}, 4),
        (RETRIED, 6),
        ({**RETRIED, **BACKOFF}, 4),
        ({**REPLICAS, **BACKOFF, "kfpytorch": {"master": {"numRetries": 1}, "worker": {"numRetries": 2}}}, 2),
        ({**REPLICAS, "kfpytorch": {"trainJob": {"maxRestarts": 3}}}, 3),
        ({**RETRIED, "kfpytorch": {"trainJob": {"maxRestarts": 0}}}, 0),
    ],
)
def test_failures_restart_all_nodes_as_often_as_the_author_permits(custom, restarts):
    planned = plan_train_job(custom)
    assert get_jobset(planned)["failurePolicy"]["maxRestarts"] == restarts
    assert get_train_job_options(planned.job).get("maxRestarts", 0) == restarts


def list_problems(custom) -> list[tuple[str, str]]:
    return [(problem.field, problem.value) for problem in reject(plan_train_job, custom)]


@pytest.mark.parametrize(
    ("custom", "extension", "field", "value"),
    [
        ({}, {"trainJob": {"maxRestarts": -1}}, "kfpytorch.trainJob.maxRestarts", "-1"),
        (BACKOFF, {"trainJob": {"maxRestarts": 4}}, "runPolicy.backoffLimit", "4"),
        ({"runPolicy": {"backoffLimit": 7}}, RETRIES, "kfpytorch.numRetries", "3"),
    ],
)
def test_conflicting_restart_limits_are_rejected(custom, extension, field, value):
    assert list_problems({**REPLICAS, **custom, "kfpytorch": extension}) == [(f"custom.{field}", value)]


@pytest.mark.parametrize(
    ("custom", "options", "field"),
    [
        (ELASTIC, {"framework": "jax"}, "elasticConfig"),
        (REPLICAS, {"framework": "flux"}, "kfpytorch.trainJob.framework"),
        ({"masterReplicas": {"replicas": 1}}, {}, "workerReplicas.replicas"),
        (REPLICAS, {"runtime": "deepspeed-distributed"}, "kfpytorch.trainJob.runtime"),
        (REPLICAS, {"topology": {"level": "rack"}}, "kfpytorch.trainJob.topology"),
        (REPLICAS, {"successPolicy": {"succeededIndexes": "0"}}, "kfpytorch.trainJob.successPolicy"),
    ],
)
def test_option_that_the_framework_does_not_support_is_rejected(custom, options, field):
    ((found, _),) = list_problems({**custom, "kfpytorch": {"trainJob": {"framework": "mpi", **options}}})
    assert found == f"custom.{field}"


def test_lost_node_of_an_elastic_job_without_a_range_restarts_all_nodes():
    (node,) = get_jobset(plan_train_job(FIXED))["replicatedJobs"]
    (rule,) = node["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NNODES", "PET_RDZV_ID"])
def test_variable_that_each_node_gets_is_rejected_in_a_task(name):
    container = {"image": "image:1", "env": [{"key": name, "value": "1"}, {"key": "A", "value": "1"}]}
    (problem,) = reject(plan_train_job, REPLICAS, container=container)
    assert problem.field.endswith(".env")
    assert (problem.value, problem.remedy) == (f'"{name}"', "leave it out")


@pytest.mark.parametrize(
    ("policy", "annotation"),
    [("CLEANPOD_POLICY_NONE", None), ("CLEANPOD_POLICY_ALL", "All"), ("CLEANPOD_POLICY_RUNNING", "Running")],
)
def test_clean_pod_policy_is_an_annotation(policy, annotation):
    planned = plan_train_job({**REPLICAS, "runPolicy": {"cleanPodPolicy": policy}})
    assert planned.job["metadata"]["annotations"].get(names.CLEAN_POD_POLICY) == annotation


def test_pod_groups_expected_from_the_operator_are_created_by_this_server():
    operator, backend = (
        plan_train_job(ELASTIC, ours={"gang": {"scheduler": "coscheduling", "pod-groups-by": creator}})
        for creator in ("operator", "backend")
    )
    assert (operator.job, operator.prerequisites) == (backend.job, backend.prerequisites)
    assert operator.companions == backend.companions != ()


def test_each_port_has_a_name_and_one_entry():
    ports = [{"containerPort": 8080}, {"containerPort": 8080}, {"containerPort": 8080, "protocol": "UDP"}]
    web = {"containerPort": 90, "name": "web"}
    spec = {"containers": [{"name": "main", "image": "i", "ports": [*ports, web]}]}
    pod = get_pod({"masterReplicas": {"replicas": 1}}, k8sPod={"podSpec": spec}, container=None)
    found = [(each["containerPort"], each["name"]) for each in pod["spec"]["containers"][0]["ports"]]
    assert found == [(8080, "port-8080"), (8080, "port-8080-udp"), (90, "web")]


def test_jax_nodes_have_the_variables_of_the_jax_policy_of_trainer():
    env = get_environment({**REPLICAS, **JAX})
    assert env["JAX_COORDINATOR_ADDRESS"] == f"{env['MASTER_ADDR']}:29500"
    assert (env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"]) == ("3", INDEX)
    (runtime,) = plan_train_job({**REPLICAS, **JAX}).prerequisites
    assert runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] == "jax"
    assert "JAX_PROCESS_ID" not in get_environment(REPLICAS)


def test_jax_processes_of_a_node_derive_their_numbers_from_the_node():
    custom = {**FIXED, **JAX}
    env = get_environment(custom)
    assert (env["JAX_NUM_PROCESSES"], env["WORLD_SIZE"], env["PET_NODE_RANK"]) == ("32", "32", INDEX)
    assert env.keys().isdisjoint({"JAX_PROCESS_ID", "PET_RDZV_ENDPOINT"})
    planned = plan_train_job(custom)
    assert planned.job["spec"]["trainer"]["numProcPerNode"] == 8
    assert "minNodes" not in get_train_job_options(planned.job)


def test_mpi_job_has_a_launcher_as_its_first_node():
    planned = plan_train_job({**FIXED, "kfpytorch": {"version": 1, "trainJob": {"framework": "mpi"}}})
    (runtime,) = planned.prerequisites
    assert runtime["spec"]["mlPolicy"] == {
        "numNodes": 1,
        "mpi": {
            "numProcPerNode": 8,
            "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": "/etc/kfpytorch/ssh",
            "runLauncherAsNode": True,
        },
    }
    launcher, node = get_jobset(planned)["replicatedJobs"]
    assert (launcher["name"], node["name"]) == ("launcher", "node")
    labels = launcher["template"]["metadata"]["labels"]
    assert labels == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert "metadata" not in node["template"]
    one, other = (each["template"]["spec"]["template"] for each in (launcher, node))
    assert one["spec"] == other["spec"]
    label = {"kfpytorch.flyte.org/first-index": "1"}
    assert other["metadata"]["labels"] == {**one["metadata"]["labels"], **label}
    (container,) = one["spec"]["containers"]
    env = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    name = planned.job["metadata"]["name"]
    assert env["MASTER_ADDR"] == f"{name}-launcher-0-0.{name}"
    assert (env["WORLD_SIZE"], "RANK" in env) == ("32", False)
    assert table.read_job(planned.job).launcher


def test_volume_mount_and_variable_that_trainer_adds_to_mpi_nodes_are_rejected():
    container = {"name": "primary", "volumeMounts": OWN_MOUNTS, "env": OWN_VARIABLES}
    template = {"podTemplate": {"spec": {**OWN_VOLUMES, "containers": [container]}}}
    roles = {"master": template, "worker": template}
    assert list_problems({**REPLICAS, "kfpytorch": {**roles, "trainJob": {"framework": "mpi"}}}) == [
        ("pod.spec.volumes[0].name", '"mpi-hostfile"'),
        ("pod.spec.containers[node].volumeMounts", '"/etc/mpi"'),
        ("pod.spec.containers[node].volumeMounts", '"/etc/kfpytorch/ssh"'),
        ("pod.spec.containers[node].env", '"OMPI_MCA_orte_default_hostfile"'),
    ]
    assert plan_train_job({**REPLICAS, "kfpytorch": roles}).dialect == "TrainJob"


@pytest.mark.parametrize(
    ("custom", "framework", "nodes"), [(REPLICAS, "mpi", 3), (FIXED, "mpi", 4), (FIXED, "jax", 4)]
)
def test_gang_smaller_than_the_nodes_that_training_starts_with_is_rejected(custom, framework, nodes):
    def plan_gang(size: int):
        options = {"trainJob": {"framework": framework}, "gang": {"minMember": size}}
        gang = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
        return plan_train_job({**custom, "kfpytorch": options}, ours={"gang": gang})

    (problem,) = reject(plan_gang, nodes - 1)
    assert (problem.field, problem.value) == ("custom.kfpytorch.gang.minMember", str(nodes - 1))
    assert problem.remedy == f"write at least {nodes}"
    (group,) = plan_gang(nodes).companions
    assert group["spec"]["minMember"] == nodes


def test_smaller_gang_is_rejected_if_the_scheduler_derives_the_size_from_the_job():
    def plan_gang(size: int, dialect: str):
        custom = {**REPLICAS, "kfpytorch": {"gang": {"minMember": size}}}
        return plan_train_job(custom, ours={"gang": {"scheduler": "kai"}, "dialect": dialect})

    (problem,) = reject(plan_gang, 2, "trainjob")
    assert (problem.field, problem.value) == ("custom.kfpytorch.gang.minMember", "2")
    assert plan_gang(3, "trainjob").dialect == "TrainJob"
    assert plan_gang(2, "pytorchjob").job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 2


def test_gang_of_an_elastic_job_has_all_nodes_if_the_scheduler_derives_its_size():
    def plan_gang(**options):
        custom = {**ELASTIC, "kfpytorch": {"gang": options}}
        return plan_train_job(custom, ours={"gang": {"scheduler": "kai"}})

    (role,) = json.loads(plan_gang().job["metadata"]["annotations"][gang_annotation.ANNOTATION])["roles"]
    assert (role["count"], role.get("replicas", 0)) == (4, 0)
    (problem,) = reject(plan_gang, minMember=1)  # Training starts with two nodes.
    assert problem.remedy == "write at least 2"


@pytest.mark.parametrize("code", [0x7F, 0x80, 0x84, 0x86, 0x9F, 0xFFFE, 0xFFFF])
def test_character_that_yaml_cannot_contain_is_rejected(code):
    (problem,) = reject(plan_with_variable, f"a{chr(code)}b")
    assert f"U+{code:04X}" in problem.message
    assert (problem.value.isascii(), problem.value.isprintable()) == (True, True)


def test_other_characters_are_kept():
    text = "\t\n\r\x1b \x85\xa0Grüße\ud7ff\ue000\ufffd\u2028\U0001f600"
    assert plan_with_variable(text)["TEXT"] == text


def plan_with_variable(text: str):
    container = {"name": "primary", "env": [{"name": "TEXT", "value": text}]}
    template = {"podTemplate": {"spec": {"containers": [container]}}}
    return get_environment({**REPLICAS, "kfpytorch": {"master": template, "worker": template}})


def of_worker(**placement):
    return {"kfpytorch": {"worker": placement}}


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"workerReplicas": {"replicas": 2, "image": "other:1"}}, "image", '"image:1" and "other:1"'),
        (of_worker(priorityClassName="high"), "priorityClassName", 'null and "high"'),
        (of_worker(podTemplate=LABELLED), "metadata.labels.team", 'null and "a"'),
        (of_worker(podTemplate=WORKING), "workingDir", 'null and "/v"'),
    ],
)
def test_different_role_is_rejected_with_both_values(fields, field, value):
    (problem,) = reject(plan_train_job, {**REPLICAS, **fields})
    assert (problem.field, problem.value) == (f"master and worker: {field}", value)
    assert problem.remedy == "use PyTorchJob, or make them equal"


def test_each_difference_of_sidecars_and_metadata_is_reported_by_field():
    def build_pod(image: str, **metadata):
        env = [{"name": "A", "value": image}]
        containers = [{"name": "node", "image": "i"}, {"name": "side", "image": image, "env": env}]
        return {"metadata": {"labels": {"a": "b"}, **metadata}, "spec": {"containers": containers}}

    job = decoded(REPLICAS)
    problems = reject(folding.fold, job, [build_pod("x"), build_pod("y", finalizers=["f"])])
    assert {each.field.partition(": ")[2]: each.value for each in problems} == {
        "side.image": '"x" and "y"',
        "side.env.A": '"x" and "y"',
        "metadata.finalizers": 'null and ["f"]',
    }
    folded, pods = folding.fold(job, [build_pod("x"), build_pod("x")])
    assert [(group.role.value, group.replicas) for group in folded.groups] == [("Node", 3)]
    assert pods == [build_pod("x")]
