"""The resources of this machine, and the processes of a job on it with their devices."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch.worker import topology
from flytekitplugins.kfpytorch.worker.topology import Machine, NoGpu, count_processes, fit

GIB = 1 << 30
SIZES = st.integers(1, 40)
MACHINES = st.builds(
    Machine,
    processors=st.integers(1, 128),
    memory=st.integers(-GIB, 1 << 40),
    gpus=st.integers(0, 16).map(lambda number: tuple(str(gpu) for gpu in range(number))),
)
CHOICES = st.none() | st.integers(1, 64)
JOB = {"PET_RDZV_ENDPOINT": "train-worker-0:23456"}


def test_rank_limit_is_derived_from_gpus_or_memory_and_cpus() -> None:
    sizes = ((2, 64 * GIB), (16, 64 * GIB), (16, 2 * GIB), (16, -GIB))
    limits = [Machine(processors=number, memory=size).compute_max_ranks() for number, size in sizes]
    assert limits == [8, 32, 4, 1]
    assert Machine(processors=16, memory=0, gpus=("0", "1", "2")).compute_max_ranks() == 3


@given(SIZES, SIZES, MACHINES, CHOICES)
def test_processes_per_node_are_reduced_before_nodes_with_a_note(nodes, nproc, machine, most) -> None:
    fitted = fit(nodes, nproc, machine, most)
    limit = machine.compute_max_ranks() if most is None else most
    assert fitted.nodes == min(nodes, limit)
    assert fitted.nproc_per_node == min(nproc, limit // fitted.nodes)
    wanted = nodes * nproc if most is None else min(nodes * nproc, most)
    assert bool(fitted.note) == (fitted.ranks < wanted)


@given(SIZES, SIZES, MACHINES, CHOICES)
def test_each_rank_of_a_node_has_its_own_device_if_there_are_enough(nodes, nproc, machine, most) -> None:
    fitted = fit(nodes, nproc, machine, most)
    shares = [share.split(",") for share in fitted.devices]
    used = [device for share in shares for device in share]
    assert set(used) <= set(machine.gpus)
    assert all(len(share) == len(set(share)) for share in shares)
    assert len(shares) == (fitted.nodes if machine.gpus else 0)
    if len(machine.gpus) >= fitted.ranks:
        assert len(used) == len(set(used))
        assert all(len(share) >= fitted.nproc_per_node for share in shares)


@pytest.mark.parametrize(
    ("requested", "gpus", "most", "expected"),
    [
        ((2, 4), "45", None, (2, 1, ("4", "5"))),
        ((2, 1), "0123", None, (2, 1, ("0,1", "2,3"))),
        ((2, 3), "01", 6, (2, 3, ("0,1", "1,0"))),
    ],
    ids=["one for each node", "more than requested", "shared by ranks"],
)
def test_gpus_are_divided_among_the_nodes(requested, gpus, most, expected) -> None:
    fitted = fit(*requested, Machine(processors=64, memory=GIB, gpus=tuple(gpus)), most)
    assert (fitted.nodes, fitted.nproc_per_node, fitted.devices) == expected


def test_note_has_the_numbers_of_ranks_and_the_reason() -> None:
    machine = Machine(processors=2, memory=8 * GIB)
    for numbers, note in (
        (("32 ", " 8:", "2 processor", "8.0 GiB", "FLYTE_KFPYTORCH_LOCAL=32"), fit(4, 8, machine, None).note),
        (("FLYTE_KFPYTORCH_LOCAL=3 ", "2 ranks"), fit(2, 4, machine, 3).note),
    ):
        assert [each for each in numbers if each not in note] == []


@pytest.mark.parametrize(
    ("count", "nodes", "gpus", "most", "expected"),
    [
        (3, 2, 4, None, 3),
        ("gpu", 1, 4, None, 4),
        ("gpu", 2, 4, None, 2),
        ("gpu", 8, 4, None, 1),
        ("gpu", 2, 0, 6, 3),
        ("auto", 2, 4, None, 2),
        ("auto", 2, 0, None, 8),
        ("auto", 2, 4, 8, 4),
        ("cpu", 2, 4, None, 8),
        ("cpu", 32, 0, None, 1),
    ],
)
def test_process_count_keyword_is_resolved_to_the_share_of_a_node(count, nodes, gpus, most, expected) -> None:
    machine = Machine(processors=16, memory=64 * GIB, gpus=tuple(map(str, range(gpus))))
    assert count_processes(count, nodes, machine, most) == expected


def test_process_per_gpu_requires_a_gpu() -> None:
    with pytest.raises(NoGpu, match=r"this machine has none; .* FLYTE_KFPYTORCH_LOCAL=4 for 4 ranks"):
        count_processes("gpu", 2, Machine(processors=16, memory=64 * GIB))


@pytest.mark.parametrize(
    ("driver", "visible", "expected"),
    [
        (3, None, ("0", "1", "2")),
        (3, "", ()),
        (3, "NoDevFiles", ()),
        (3, "2,0", ("2", "0")),
        (3, " 0 , 1 ", ("0", "1")),
        (3, "GPU-1a2b,MIG-3c4d", ("GPU-1a2b", "MIG-3c4d")),
        (3, "0,-1,1", ("0",)),
        (3, "0,7,1", ("0",)),
        ("no list", "0,7", ("0", "7")),
        ("no list", None, ()),
        (None, "0,1", ()),
    ],
)
def test_gpus_are_those_of_the_driver_that_are_visible(tmp_path, monkeypatch, driver, visible, expected):
    if driver is not None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/nvidiactl").touch()
        count = driver if isinstance(driver, int) else 0
        lines = "".join(f"GPU {gpu}: NVIDIA H100 (UUID: GPU-{gpu})\n" for gpu in range(count))
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{lines}'\nexit {int(driver == 'no list')}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert topology.list_gpus(env, tmp_path) == expected


def test_this_machine_has_processors_and_memory() -> None:
    here = topology.detect_machine({"CUDA_VISIBLE_DEVICES": ""})
    assert 1 <= here.processors <= len(os.sched_getaffinity(0))
    assert 0 < here.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert here.gpus == ()


@pytest.mark.parametrize(
    ("requested", "env", "expected"),
    [
        (3, {**JOB, "PET_NPROC_PER_NODE": "8"}, 3),
        ("gpu", {**JOB, "PET_NPROC_PER_NODE": "8"}, 8),
        ("cpu", {**JOB, "PET_NPROC_PER_NODE": "8"}, 8),
        ("cpu", {**JOB, "PET_NPROC_PER_NODE": "auto"}, topology.count_processors()),
        ("cpu", {}, topology.count_processors()),
    ],
)
def test_process_count_of_a_job_comes_from_its_registration_or_the_pod(requested, env, expected) -> None:
    assert topology.count_pod_processes(requested, env) == expected


@pytest.mark.torch
def test_pod_without_a_gpu_has_a_process_for_each_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert topology.count_pod_processes("auto", {}) == topology.count_processors()
    with pytest.raises(NoGpu, match="this pod has none; request GPUs"):
        topology.count_pod_processes("gpu", {})
