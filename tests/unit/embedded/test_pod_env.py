"""The environment and the arguments of a container, and the addresses and ports in them."""

import pytest
from bound_pods import container, only, replica
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.embedded.pod_addresses import PodAddresses
from backend_plugin.embedded.pod_env import expand_references

NESTED = {"A0": "x" * 100, **{f"A{n}": f"$(A{n - 1})" * 10 for n in range(1, 40)}}
OF_ANOTHER = {"resource": "limits.cpu", "containerName": "x"}
TORCHRUN = "torchrun --rdzv-endpoint=$MASTER_ADDR:{} --master_port {} x.py --port=1"


def build_env(*args, **fields):
    found = only(container(*args or ("true",), **fields))
    return found["env"], found["argv"]


def test_references_are_expanded_like_kubernetes_does():
    expected = {
        "$(A)": "1",
        "x$(A)y$(B)": "x1y2",
        "$(NONE)": "$(NONE)",
        "$$(A)": "$(A)",
        "$$$(A)": "$1",
        "$$": "$",
        "$A ${A} $": "$A ${A} $",
        "$(A": "$(A",
        "$(A$$": "$(A$",
        "$()": "$()",
        "$(echo $$)": "$(echo $$)",
        "$(A$(B))": "$(A$(B))",
        "$(B)$(A)": "21",
        # The time of the expansion is linear.
        "$(" * 65_000: "$(" * 65_000,
    }
    assert {text: expand_references(text, {"A": "1", "B": "2"}) for text in expected} == expected


@given(st.text("ab$()", max_size=12))
def test_text_with_doubled_dollars_is_kept(text):
    assert expand_references(text.replace("$", "$$"), {"a": "!", "b": "!", "": "!"}) == text


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        ((), NESTED, "variable A4 is longer than 131071 characters"),
        ((), {"A": "x" * 100_000, **{f"B{n}": "$(A)" for n in range(100)}}, "the environment is longer than"),
        ((), {"A": "x" * 131_072}, "variable A is longer than"),
        (("echo", "$(A)$(A)"), {"A": "x" * 100_000}, ""),
    ],
    ids=["nested", "many", "one", "argument"],
)
def test_nested_references_are_bounded(args, env, words):
    reason, message = only(container(*args or ("true",), env=env))["blocked"]
    assert reason == "CreateContainerConfigError"
    assert message.startswith(words)


def test_variable_references_earlier_variables_and_arguments_reference_all():
    env, argv = build_env("$(A) $(B) $(C)", env={"A": "$(B)", "B": "1", "C": "$(B)$(B)"})
    assert (env["A"], env["B"], env["C"], argv) == ("$(B)", "1", "11", ["$(B) 1 11"])


def test_last_of_two_variables_with_the_same_name_counts():
    twice = {**container("$(A)"), "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2$(A)"}]}
    assert (only(twice)["env"]["A"], only(twice)["argv"]) == ("21", ["21"])


def test_command_precedes_the_arguments():
    assert only(container("b", command=["a"]))["argv"] == ["a", "b"]
    reason, message = only({"name": "pytorch", "image": "i"})["blocked"]
    assert (reason, "no command specified" in message) == ("CreateContainerError", True)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "j-worker-1"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "a"),
        ({"fieldRef": {"fieldPath": "metadata.uid"}}, "u"),
        ({"fieldRef": {"fieldPath": "metadata.labels['team']"}}, "vision"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "node-1"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.0.0.1"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}, "512"),
        ({"resourceFieldRef": {"resource": "limits.memory"}}, str(1 << 33)),
        ({"resourceFieldRef": {"resource": "requests.nvidia.com/gpu"}}, "0"),
    ],
)
def test_downward_api_fields_are_resolved(source, value):
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "512Mi"}}
    env, argv = build_env("$(A)", env={"A": source}, resources=resources)
    assert (env["A"], argv) == (value, [value])


def test_pod_name_is_kept_while_its_address_is_rewritten():
    env, argv = build_env(
        "--name=$(ME)",
        "--master=j-worker-1",
        env={"ME": {"fieldRef": {"fieldPath": "metadata.name"}}, "SAID": "$(ME)", "HOST": "j-worker-1"},
    )
    assert (env["ME"], env["SAID"], env["HOST"]) == ("j-worker-1", "j-worker-1", "127.0.0.1")
    assert argv == ["--name=j-worker-1", "--master=127.0.0.1"]
    assert env["HOSTNAME"] == "j-worker-1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, 'configmap "c" not found'),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
        ({"env": {"A": {"secretKeyRef": {"name": "s", "key": "k"}}}}, 'secret "s" not found'),
        ({"env": {"A": {"configMapKeyRef": {"name": "c", "key": "k"}}}}, 'configmap "c" not found'),
        ({"env": {"A": {"fieldRef": {"fieldPath": "status.no"}}}}, "unsupported fieldPath: status.no"),
        ({"env": {"A": {"resourceFieldRef": OF_ANOTHER}}}, "container x not found"),
    ],
)
def test_missing_reference_or_invalid_value_blocks_a_container_like_the_kubelet(fields, message):
    assert only(container("true", **fields))["blocked"] == ["CreateContainerConfigError", message]


def test_optional_references_may_be_missing():
    optional = {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}
    secret = {"secretRef": {"name": "s", "optional": True}}
    env, argv = build_env("$(A)", env={"A": optional}, envFrom=[secret])
    assert "A" not in env
    assert argv == ["$(A)"]


@pytest.mark.parametrize(("limits", "memory"), [({"memory": "1.5Gi"}, 3 << 29), ({"cpu": "1"}, None)])
def test_memory_limit_is_in_bytes(limits, memory):
    assert only(container("true", resources={"limits": limits}))["memory"] == memory


def test_variables_of_a_pod_without_a_job_are_unchanged():
    pod = replica()
    pod["metadata"]["labels"] = {}
    env = only(container("true", env={"MASTER_PORT": "1", "MASTER_ADDR": "j-worker-1"}), pod)["env"]
    assert (env["MASTER_PORT"], env["MASTER_ADDR"]) == ("1", "j-worker-1")


def test_replica_names_are_replaced_by_addresses():
    expected = {
        "j-worker-17": "127.0.0.1",
        "tcp://j-master-0:23456": "tcp://127.0.0.1:40001",
        "--rdzv-endpoint=j-worker-0:23456,x": "--rdzv-endpoint=127.0.0.1:40001,x",
        "j-master-0.a.svc.cluster.local:23456": "127.0.0.1:40001",
        # Ports of a program.
        "http://j-master-0:8080/x": "http://127.0.0.1:8080/x",
        "j-worker-1:234567": "127.0.0.1:234567",
        "j-master-0.a": "127.0.0.1",
        "[j-master-0, j-worker-0]": "[127.0.0.1, 127.0.0.1]",
        "ask j-master-0.": "ask 127.0.0.1.",
        # Similar names that are not replicas.
        "j-master-1": "j-master-1",
        "j-worker-": "j-worker-",
        "other-j-master-0": "other-j-master-0",
        "j-master-0-logs": "j-master-0-logs",
        "j-master-0.log": "j-master-0.log",
        "j-master-0.b.svc": "j-master-0.b.svc",
        "a.j-master-0": "a.j-master-0",
        "s3://bucket/j-master-0/x": "s3://bucket/j-master-0/x",
        "example.org:23456": "example.org:23456",
    }
    assert {text: PodAddresses.from_pod(replica()).rewrite(text) for text in expected} == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"PET_RDZV_ENDPOINT": "j-worker-0:29400"}},
        {"env": {"MASTER_PORT": "29400"}},
        {"env": {"PET_MASTER_PORT": "29400"}},
        {"ports": [{"name": "pytorchjob-port", "containerPort": 29400}]},
    ],
)
def test_rendezvous_port_is_replaced_by_the_port_of_the_job(fields):
    found = only(container("j-worker-0:29400", "j-worker-0:8080", **fields))
    assert found["argv"] == ["127.0.0.1:40001", "127.0.0.1:8080"]


@pytest.mark.parametrize(
    ("arguments", "here"),
    [
        (["--rdzv-endpoint=j-worker-0:29500"], ["--rdzv-endpoint=127.0.0.1:40001"]),
        (["--rdzv_endpoint", "$(MASTER_ADDR):29500"], ["--rdzv_endpoint", "127.0.0.1:40001"]),
        (["--master-port=29500", "--nnodes=2"], ["--master-port=40001", "--nnodes=2"]),
        (["--master_port", "29500"], ["--master_port", "40001"]),
        (["-c", TORCHRUN.format(29500, 29501)], ["-c", TORCHRUN.format(40001, 40001)]),
        (["--rdzv-endpoint", "j-worker-0"], ["--rdzv-endpoint", "127.0.0.1"]),
        (["--endpoint=j-worker-0:1", "--port", "1"], ["--endpoint=127.0.0.1:1", "--port", "1"]),
        (["train", "--master-port"], ["train", "--master-port"]),
        # Longer than a host name.
        ([f"--rdzv-endpoint={'h' * 300}:29500"], [f"--rdzv-endpoint={'h' * 300}:29500"]),
    ],
)
def test_port_passed_only_to_torchrun_is_replaced_by_the_port_of_the_job(arguments, here):
    assert only(container(*arguments, env={"MASTER_ADDR": "j-master-0"}))["argv"] == here


def test_job_name_is_not_used_as_a_pattern():
    pod = replica("j.x-worker-0")
    pod["metadata"]["labels"]["training.kubeflow.org/job-name"] = "j.x"
    addresses = PodAddresses.from_pod(pod)
    assert addresses.rewrite("j.x-worker-0 jyx-worker-0") == "127.0.0.1 jyx-worker-0"
    assert addresses.build_rendezvous_variables({}, "j.x-worker-0:1")["PET_RDZV_CONF"] == "is_host=1"


def test_job_without_an_assigned_port_keeps_its_own_port():
    variables = {"MASTER_PORT": "23456", "A": "j-master-0:23456"}
    found = only(container("--master_port", "1", env=variables), replica(port=""))
    assert found["argv"] == ["--master_port", "1"]
    assert (found["env"]["MASTER_PORT"], found["env"]["A"]) == ("23456", "127.0.0.1:23456")


def test_operator_variables_are_rewritten():
    ports, names = ("MASTER_PORT", "PET_MASTER_PORT"), ("MASTER_ADDR", "PET_MASTER_ADDR")

    def variables(address, port):
        return {**dict.fromkeys(ports, port), **dict.fromkeys(names, address)}

    env = {**variables("j-master-0", "23456"), "URL": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"}
    found = only(container("--port=$(MASTER_PORT)", "$(MASTER_ADDR):1234", env=env))
    # Port 1234 is not declared, so it is kept in the argument.
    expected = {**variables("127.0.0.1", "40001"), "URL": "tcp://127.0.0.1:40001"}
    assert {name: found["env"][name] for name in env} == expected
    assert found["argv"] == ["--port=40001", "127.0.0.1:1234"]


@pytest.mark.parametrize(
    ("name", "endpoint", "options", "conf"),
    [
        ("j-worker-0", "j-worker-0:29400", None, "is_host=1"),
        ("j-worker-1", "j-worker-0:29400", None, "is_host=0"),
        ("j-worker-10", "j-worker-1:29400", None, "is_host=0"),
        ("j-worker-1", "j-worker-0:29400", "timeout=9", "timeout=9,is_host=0"),
        ("j-worker-1", "j-worker-0:29400", "is_host=1,timeout=9", "is_host=1,timeout=9"),
        ("j-worker-0", "j-worker-0.a.svc:29400", None, "is_host=1"),
        ("j-worker-0", "etcd.example.org:2379", None, None),
        ("j-worker-0", None, None, None),
    ],
)
@pytest.mark.parametrize("local", [None, "10.0.0.1"])
def test_one_replica_hosts_the_rendezvous(name, endpoint, options, conf, local):
    env = {"PET_RDZV_ENDPOINT": endpoint, "PET_RDZV_CONF": options, "PET_LOCAL_ADDR": local}
    found = only(container("true", env={k: v for k, v in env.items() if v is not None}), replica(name))["env"]
    assert found.get("PET_RDZV_CONF") == conf
    assert found.get("PET_LOCAL_ADDR") == (local or (None if conf is None else "127.0.0.1"))
