"""Ranks share no state: forked processes are compared with fresh interpreters."""

import json
import os
from pathlib import Path

import flytekit
import numpy as np
import pytest
import torch
import torch.distributed as dist
from flytekit import task
from flytekit.core.data_persistence import FileAccessProvider
from flytekit.types.file import FlyteFile

from e2e.scripts import rank_state
from flytekitplugins.kfpytorch import Elastic
from kfpytorch_common import prestart
from kfpytorch_common.forkserver import client, launch

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


def read_state(server, directory):
    env = {**os.environ, "OMP_NUM_THREADS": "2", "TZ": "Asia/Tokyo", "TMPDIR": str(directory)}
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    server.client.start(client.ChildSpec("e2e.scripts.rank_state:probe", {}, env), [null, 2, 2, writer])
    for end in (writer, null):
        os.close(end)
    with os.fdopen(reader) as pipe:
        return json.load(pipe)


def read_states(directory, count, *, forks):
    preload = (*prestart.PRELOAD, "tests.e2e.scripts.frozen") if forks else ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYTE_KFPYTORCH_FORK", str(int(forks)))
        server = launch.start_fresh_server(preload)
        try:
            return [read_state(server, directory) for _ in range(count)]
        finally:
            server.stop()


def test_forked_ranks_have_the_same_state_as_fresh_interpreters(tmp_path):
    fork, other = read_states(tmp_path, 2, forks=True)
    assert [name for name in rank_state.INDEPENDENT if fork[name] == other[name]] == []
    (fresh,) = read_states(tmp_path, 1, forks=False)
    assert {name: fork[name] for name in rank_state.EQUAL} == {name: fresh[name] for name in rank_state.EQUAL}


def gather(value):
    dist.init_process_group("gloo")
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def test_each_rank_and_run_has_its_own_seed():
    @task(task_config=Elastic(nproc_per_node=2, start_method="fork"))
    def draw() -> list[list[float]]:
        path = int(FileAccessProvider.get_random_string(), 16)
        return gather([float(torch.rand(())), float(torch.initial_seed()), float(path)])

    torch.seed()  # Replace a seed that another test set.
    drawn = [number for each in [*draw(), *draw()] for number in each]
    assert len(set(drawn)) == len(drawn)


def test_seed_set_by_the_caller_applies_in_forked_ranks():
    @task(task_config=Elastic(nproc_per_node=2, start_method="fork"))
    def draw() -> list[list[float]]:
        return gather([float(torch.rand(())), float(np.random.rand())])

    torch.manual_seed(7)
    np.random.seed(7)
    assert draw() == [[float(torch.rand(())), float(np.random.rand())]] * 2


def test_each_rank_has_its_own_working_directory():
    @task(task_config=Elastic(nproc_per_node=2))
    def write() -> tuple[FlyteFile, list[str]]:
        directory = Path(flytekit.current_context().working_directory)
        (directory / "rank.txt").write_text(os.environ["RANK"])
        return FlyteFile(str(directory / "rank.txt")), gather(str(directory))

    file, directories = write()
    assert (Path(file).read_text(), len(set(directories))) == ("0", 2)
