"""What this machine has, asked of the operating system."""

import os

import pytest

from flytekitplugins.kfpytorch.worker import machine


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("2,0", ("2", "0")),
        (" 0 , 1 ", ("0", "1")),
        ("GPU-1a2b,MIG-3c4d", ("GPU-1a2b", "MIG-3c4d")),
    ],
)
def test_the_gpus_are_those_that_the_environment_shows(visible: str, expected: tuple[str, ...]) -> None:
    assert machine.gpus({"CUDA_VISIBLE_DEVICES": visible}) == expected


def test_a_number_that_is_none_hides_all_gpus_behind_it() -> None:
    assert machine.gpus({"CUDA_VISIBLE_DEVICES": "0,-1,1"}) == ("0",)


def test_this_machine_has_something() -> None:
    here = machine.here({"CUDA_VISIBLE_DEVICES": "7"})
    assert 1 <= here.processors <= len(os.sched_getaffinity(0))
    assert 0 < here.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (here.gpus, here.most_ranks()) == (("7",), 1)
