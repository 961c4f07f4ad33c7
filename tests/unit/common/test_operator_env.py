"""The environment of a replica equals that of the training operator (envvar.go, versions 1.7 to 1.9)."""

import pytest

from kfpytorch_common import operator_env


def build_expected(rank: str, replicas: str) -> dict[str, str]:
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": replicas,
        "RANK": rank,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": replicas,
    }


@pytest.mark.parametrize("rank", ["0", "2"])
def test_replica_gets_the_master_address_and_its_rank(rank: str) -> None:
    assert operator_env.build_replica_env(int(rank), 3, 23456) == build_expected(rank, "3")


def test_single_process_gets_all_variables_of_torchrun() -> None:
    assert operator_env.build_single_process_env(23456) == {
        **build_expected("0", "1"),
        "PET_NPROC_PER_NODE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }


def test_elastic_node_gets_the_rendezvous_endpoint() -> None:
    assert operator_env.build_elastic_env(2, 8, 3, 29400) == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": "127.0.0.1:29400",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "2:2",
        "PET_MAX_RESTARTS": "3",
        "PET_NPROC_PER_NODE": "8",
    }


def test_replicas_are_named_like_the_operator_names_them() -> None:
    names = [operator_env.format_replica_name(index) for index in (0, 1, 2)]
    assert names == ["master-0", "worker-0", "worker-1"]
