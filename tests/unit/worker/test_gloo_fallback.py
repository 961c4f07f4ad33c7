"""gloo replaces nccl on machines without a GPU, only in calls of the user."""

import contextlib
from datetime import timedelta

import pytest
import torch
from torch import distributed

from flytekitplugins.kfpytorch.worker import torch_adaptations

pytestmark = [
    pytest.mark.torch,
    # torch's warning about a process group that is not destroyed.
    pytest.mark.filterwarnings("ignore::UserWarning:torch.distributed"),
]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Yield the arguments of a process group with one rank, without the backend."""
    monkeypatch.setenv("RANK", "0")
    yield {"init_method": f"file://{tmp_path / 'store'}", "rank": 0, "world_size": 1}
    if distributed.is_initialized():
        distributed.destroy_process_group()


def devices():
    return dict(part.split(":") for part in str(distributed.get_backend_config()).split(","))


@pytest.mark.parametrize("asked", ["nccl", "NCCL", "cpu:gloo,cuda:nccl", "cuda:nccl"])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_nccl_is_replaced_by_gloo_on_a_cpu_with_one_warning(world, capsys, monkeypatch, asked, rank) -> None:
    monkeypatch.setenv("RANK", rank)
    with torch_adaptations.replace_nccl():
        distributed.init_process_group(backend=asked, **world)
        distributed.new_group(backend="nccl")
        tensor = torch.ones(2)
        distributed.all_reduce(tensor)
    assert (devices()["cpu"], set(devices().values())) == ("gloo", {"gloo"})
    assert tensor.tolist() == [1, 1]
    assert capsys.readouterr().err == ("" if rank == "1" else torch_adaptations.WARNING + "\n")


@pytest.mark.parametrize("asked", ["gloo", "cpu:gloo"])
def test_other_backends_are_not_replaced(world, capsys, asked) -> None:
    with torch_adaptations.replace_nccl():
        distributed.init_process_group(backend=asked, **world)
    assert (distributed.get_backend(), capsys.readouterr().err) == (asked, "")


def test_positional_backend_is_replaced_and_the_device_id_dropped(world):
    with torch_adaptations.replace_nccl():
        distributed.init_process_group("nccl", **world, device_id=torch.device("cuda:0"))
    assert distributed.get_backend() == "gloo"


def test_subgroup_uses_gloo_too(world):
    with torch_adaptations.replace_nccl():
        distributed.init_process_group("gloo", **world)
        groups = [
            distributed.new_group(backend="nccl"),
            distributed.new_group([0], timedelta(seconds=9), "nccl"),
            distributed.distributed_c10d.new_group([0], backend="NCCL"),
            distributed.new_subgroups(1, backend="nccl")[0],
        ]
        assert [distributed.get_backend(group) for group in groups] == ["gloo"] * 4


def test_torch_functions_are_restored_afterwards():
    places = [distributed, distributed.distributed_c10d]
    before = [(place.init_process_group, place.new_group) for place in places]
    with contextlib.suppress(KeyError), torch_adaptations.replace_nccl():
        assert [(place.init_process_group, place.new_group) for place in places] != before
        raise KeyError
    assert [(place.init_process_group, place.new_group) for place in places] == before


def test_error_of_torch_is_raised_unchanged(world):
    with torch_adaptations.replace_nccl(), pytest.raises(TypeError, match="timedelta, got soon"):
        distributed.init_process_group("nccl", **world, timeout="soon")
