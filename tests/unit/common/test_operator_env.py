"""The environment of a replica equals that of the training operator (envvar.go, versions 1.7 to 1.9)."""

import pytest

from kfpytorch_common import operator_env


@pytest.mark.parametrize("rank", ["0", "1", "2"])
def test_replica_gets_the_master_address_and_its_rank(rank: str) -> None:
    assert operator_env.build_replica_env(int(rank), 3, 23456) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": "3",
        "RANK": rank,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": "3",
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


def test_single_process_gets_all_variables_of_torchrun() -> None:
    assert operator_env.build_single_process_env(4000) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "4000",
        "PET_MASTER_PORT": "4000",
        "MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": "1",
        "RANK": "0",
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "1",
        "PET_NNODES": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }


def test_replicas_are_named_like_the_operator_names_them() -> None:
    names = [operator_env.format_replica_name(index) for index in (0, 1, 2)]
    assert names == ["master-0", "worker-0", "worker-1"]
