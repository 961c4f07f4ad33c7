"""Replica names and ports, rewritten for one machine."""

import pytest
from bound_pods import container, only, replica

from backend_plugin.embedded.pod_addresses import PodAddresses

TORCHRUN = "torchrun --rdzv-endpoint=$MASTER_ADDR:{} --master_port {} x.py --port=1"


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("j-worker-17", "127.0.0.1"),
        ("tcp://j-master-0:23456", "tcp://127.0.0.1:40001"),
        ("--rdzv-endpoint=j-worker-0:23456,x", "--rdzv-endpoint=127.0.0.1:40001,x"),
        ("j-master-0.a.svc.cluster.local:23456", "127.0.0.1:40001"),
        # Ports of a program.
        ("http://j-master-0:8080/x", "http://127.0.0.1:8080/x"),
        ("j-worker-1:234567", "127.0.0.1:234567"),
        ("j-master-0.a", "127.0.0.1"),
        ("[j-master-0, j-worker-0]", "[127.0.0.1, 127.0.0.1]"),
        ("ask j-master-0.", "ask 127.0.0.1."),
        # Similar names that are not replicas.
        ("j-master-1", "j-master-1"),
        ("j-worker-", "j-worker-"),
        ("other-j-master-0", "other-j-master-0"),
        ("j-master-0-logs", "j-master-0-logs"),
        ("j-master-0.log", "j-master-0.log"),
        ("j-master-0.b.svc", "j-master-0.b.svc"),
        ("a.j-master-0", "a.j-master-0"),
        ("s3://bucket/j-master-0/x", "s3://bucket/j-master-0/x"),
        ("example.org:23456", "example.org:23456"),
    ],
)
def test_replica_names_are_replaced_by_addresses(text, rewritten):
    assert PodAddresses.from_pod(replica()).rewrite(text) == rewritten


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
