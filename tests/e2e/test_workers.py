"""The environment and the result of a function in a worker, in direct calls from Python."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import flytekit
import pytest
import torch
import torch.distributed as dist
from flytekit import Artifact, Secret, task, workflow
from flytekit.core.context_manager import FlyteContextManager
from flytekit.exceptions.user import FlyteRecoverableException, FlyteUserRuntimeException
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile
from torch import nn

from flytekitplugins.kfpytorch import Elastic, PyTorch, SuccessPolicy, TrainJob, Worker

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

THREE = {"OMP_NUM_THREADS": "3"}
Report = Artifact(name="report")


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@dataclass
class WorkerSettings:
    rate: float
    name: str = "first"


COUNTER = {"calls": 0}


def raised(count):
    COUNTER["calls"] += count
    return COUNTER["calls"]


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_module_state_closures_and_dataclasses_reach_each_rank(start_method):
    around = {"factor": 3}

    @task(task_config=Elastic(nproc_per_node=2, start_method=start_method))
    def compute(settings: WorkerSettings) -> tuple[float, str, int]:
        settings.name = "changed"
        dist.init_process_group("gloo")
        total = torch.tensor(settings.rate * around["factor"])
        dist.all_reduce(total)
        return total.item(), settings.name, raised(2)

    total, name, calls = compute(settings=WorkerSettings(rate=0.5))
    assert (round(total, 3), name, calls) == (3.0, "changed", 2)
    assert COUNTER == {"calls": 0}


@pytest.mark.parametrize(("start_method", "env", "expected"), [("spawn", {}, "1"), ("fork", THREE, "3")])
def test_thread_counts_follow_the_environment(monkeypatch, start_method, env, expected):
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    @task(task_config=Elastic(nproc_per_node=2, start_method=start_method))
    def threads() -> list[str]:
        return [os.environ["OMP_NUM_THREADS"], str(torch.get_num_threads())]

    assert threads() == [expected] * 2


def test_variable_read_at_interpreter_start_is_applied(monkeypatch):
    @task(task_config=Elastic())
    def text_hash() -> int:
        return hash("kfpytorch")

    monkeypatch.setenv("PYTHONHASHSEED", "7")
    fresh = subprocess.run(
        [sys.executable, "-c", "print(hash('kfpytorch'))"], capture_output=True, text=True, check=True
    )
    assert text_hash() == int(fresh.stdout)


def test_decks_artifacts_and_files_are_returned():
    @task(task_config=Elastic(nproc_per_node=2), enable_deck=True)
    def produce() -> tuple[Annotated[str, Report], FlyteFile, FlyteDirectory]:
        here = Path(flytekit.current_context().working_directory)
        (here / "model.txt").write_text("weights")
        (here / "many").mkdir(exist_ok=True)
        (here / "many" / "one.txt").write_text("1")
        flytekit.Deck("curve", f"drawn by rank {os.environ['RANK']}")
        return "text", FlyteFile(str(here / "model.txt")), FlyteDirectory(str(here / "many"))

    @workflow
    def all_of_it() -> tuple[str, FlyteFile, FlyteDirectory]:
        return produce()

    text, file, directory = all_of_it()

    assert (text, Path(file).read_text()) == ("text", "weights")
    assert (Path(directory) / "one.txt").read_text() == "1"
    decks = {deck.name: deck.html for deck in flytekit.current_context().decks}
    assert "drawn by rank 0" in decks["curve"]


def test_secrets_and_checkpoints_work_in_workers(monkeypatch):
    monkeypatch.setenv("FLYTE_SECRETS_ENV_PREFIX", "")
    monkeypatch.setenv("_FSEC_TEAM_KEY", "hidden")

    @task(task_config=Elastic(), secret_requests=[Secret(group="team", key="key")])
    def use() -> str:
        context = flytekit.current_context()
        context.checkpoint.write(b"epoch 3")
        return context.secrets.get("team", "key")

    assert use() == "hidden"


def test_large_tensor_is_returned_unchanged_and_writable():
    @task(task_config=Elastic(nproc_per_node=2))
    def large() -> torch.Tensor:
        return torch.arange(4_000_000, dtype=torch.float32)

    back = large.execute()
    back[1500] = -1.0
    assert (back.shape, float(back[:1500].sum())) == ((4_000_000,), sum(range(1500)))


def test_direct_call_runs_in_this_process_with_world_size_one(capfd):
    @task(task_config=PyTorch(worker=Worker(replicas=3)))
    def alone() -> list[int]:
        dist.init_process_group("nccl")
        total = torch.ones(1)
        dist.all_reduce(total)
        world = dist.get_world_size()
        dist.destroy_process_group()
        return [os.getpid(), world, int(total.item())]

    before = dict(os.environ)
    assert alone() == [os.getpid(), 1, 1]
    assert dict(os.environ) == before
    assert "gloo replaces nccl" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("replicas", "env", "times"),
    [
        (4, {}, 1),
        (1, {}, 0),
        (5, {"FLYTE_KFPYTORCH_LOCAL": "inline"}, 0),
        (6, {"RANK": "0", "WORLD_SIZE": "6"}, 0),
    ],
    ids=["several", "one", "chosen", "torchrun"],
)
def test_direct_call_reports_once_that_other_ranks_do_not_run(replicas, env, times, monkeypatch, capfd):
    def world() -> int:
        return int(os.environ["WORLD_SIZE"])

    world.__qualname__ = world.__name__ = f"world_of_{replicas}"
    called = task(world, task_config=PyTorch(worker=Worker(replicas=replicas - 1)))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert (called(), called()) == (1, 1)
    assert capfd.readouterr().err.count(f"a world size of 1; to start all {replicas} ranks") == times


@pytest.mark.parametrize(
    "config", [Elastic(nnodes=2), PyTorch(worker=Worker(replicas=1))], ids=["nodes", "replicas"]
)
def test_task_timeout_ends_a_local_run(config, monkeypatch):
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOCAL", "replicas")

    @task(task_config=config, timeout=timedelta(seconds=1.5))
    def endless() -> int:
        threading.Event().wait()
        return 1

    with pytest.raises(FlyteUserRuntimeException, match=r"TaskTimeout: the task ran longer than 1.5 s"):
        endless()


def test_local_mode_variable_sets_the_world_size(monkeypatch):
    @task(task_config=Elastic(nnodes=2, nproc_per_node=2))
    def world() -> int:
        return int(os.environ["WORLD_SIZE"])

    world_sizes = {}
    for mode in ("inline", "2", "4"):
        monkeypatch.setenv("FLYTE_KFPYTORCH_LOCAL", mode)
        world_sizes[mode] = world()
    assert world_sizes == {"inline": 1, "2": 2, "4": 4}


def test_success_policy_without_effect_is_reported(monkeypatch, capfd):
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOCAL", "replicas")
    options = TrainJob(success_policy=SuccessPolicy(succeeded_indexes="0"))

    @task(task_config=PyTorch(worker=Worker(replicas=1), train_job=options))
    def train() -> int:
        return 1

    train()
    assert capfd.readouterr().err.count("success_policy has no effect") == 1


def test_exit_is_detected_before_the_monitor_interval():
    @task(task_config=Elastic(nproc_per_node=2, monitor_interval=30))
    def quick() -> int:
        return 1

    quick()  # The fork server runs from here on.
    began = time.monotonic()
    quick()
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(("start_method", "recoverable"), [("spawn", True), ("fork", False)])
def test_errors_keep_their_kind_and_time(start_method, recoverable):
    class OwnRecoverable(FlyteRecoverableException):
        pass

    @task(task_config=Elastic(nproc_per_node=2, start_method=start_method))
    def fail() -> None:
        raise OwnRecoverable("again") if recoverable else KeyError("gone")

    began = time.time()
    expected = FlyteRecoverableException if recoverable else FlyteUserRuntimeException
    with pytest.raises(expected, match=r"failed on rank \d") as caught:
        fail()
    assert began <= caught.value.timestamp <= time.time()


@pytest.mark.parametrize("leaving", [{"0"}, {"0", "1"}], ids=["rank 0", "both"])
def test_exit_of_rank_0_without_a_result_is_a_failure(leaving):
    @task(task_config=Elastic(nproc_per_node=2))
    def leave_at_once() -> int:
        if os.environ["RANK"] in leaving:
            os._exit(0)
        return 1

    cause = r"failed on rank 0 (.*\n)*.*NoResult(.*\n)*  others rank 1 ended well"
    with pytest.raises(FlyteUserRuntimeException, match=cause):
        leave_at_once()


def fail_to_load():
    raise KeyError("the version of its format")


class Unloadable:
    def __reduce__(self):
        return fail_to_load, ()


def test_result_that_cannot_be_loaded_is_a_failure(capfd):
    @task(task_config=Elastic(nproc_per_node=2))
    def train() -> Unloadable:
        return Unloadable()

    cause = r"failed on rank 0 (.*\n)*.*KeyError: the result of rank 0 cannot be loaded"
    with pytest.raises(FlyteUserRuntimeException, match=cause) as caught:
        train()
    assert "in fail_to_load" in str(caught.value)
    assert "done in" not in capfd.readouterr().err


def test_launch_does_not_change_the_context_of_the_caller():
    @task(task_config=Elastic(rdzv_configs={"join_timeout": 20}))
    def nothing() -> None:
        pass

    size, before = FlyteContextManager.size(), dict(os.environ)
    nothing()
    assert (FlyteContextManager.size(), dict(os.environ)) == (size, before)
    assert nothing.task_config.rdzv_configs == {"join_timeout": 20}


@pytest.mark.parametrize("config", [Elastic(nnodes=2), PyTorch(worker=Worker(replicas=1))], ids=type)
def test_task_called_by_a_rank_has_a_process_group_of_its_own(config):
    @task(task_config=config)
    def sum_ones() -> int:
        dist.init_process_group("gloo")
        ones = torch.ones(1)
        dist.all_reduce(ones)
        return int(ones.item())

    @task(task_config=Elastic(nproc_per_node=2))
    def call() -> int:
        return sum_ones()

    # A PyTorch task that Python calls runs in its caller's process, as a world of one.
    assert call() == (2 if isinstance(config, Elastic) else 1)


def test_thread_that_outlives_the_function_is_reported(capfd):
    @task(task_config=Elastic(nproc_per_node=2))
    def leave_a_thread() -> int:
        if os.environ["RANK"] == "1":
            threading.Thread(target=time.sleep, args=(8,), name="loader").start()
        return 1

    leave_a_thread()
    lines = [line for line in capfd.readouterr().err.splitlines() if "waits for the thread" in line]
    assert [line.partition("  ")[2] for line in lines] == [
        "rank 1: the function has ended, and its process waits for the thread loader"
    ]


def test_concurrent_runs_in_threads_are_independent():
    @task(task_config=Elastic(nproc_per_node=2))
    def add(value: int) -> int:
        dist.init_process_group("gloo")
        total = torch.tensor(value)
        dist.all_reduce(total)
        return int(total.item())

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda value: add(value=value), range(3))) == [0, 2, 4]


class Net(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([weight]))


@task
def make(weight: float) -> Net:
    return Net(weight)


@task(task_config=Elastic(nproc_per_node=2))
def double(model: nn.Module) -> Net:
    return Net(2 * model.weight.item())


@task
def read(model: nn.Module) -> list[float]:
    return [model.weight.item()]


@workflow
def chain() -> list[float]:
    return read(model=double(model=make(weight=1.5)))


def test_model_passes_through_distributed_and_plain_tasks():
    assert chain() == [3.0]
    model = double(model=Net(0.5))
    assert (type(model), model.weight.tolist()) == (Net, [1.0])
