"""The embedded cluster assigns the GPUs of this machine to pods."""

import sys

import torch
from backend_plugin.embedded.resources import GPU
from e2e.embedded.emulated import job, lines, opened, role
from flytekitplugins.kfpytorch.worker import topology

COUNT = f"{sys.executable} -c 'import torch; print(torch.cuda.device_count())'"
ADD = f"{sys.executable} -c 'import torch; print(torch.ones(2).cuda().sum().item())'"


async def test_pod_gets_the_gpus_that_it_requests_and_the_next_one_waits(tmp_path):
    gpus = torch.cuda.device_count()
    resources = {"limits": {GPU: str(gpus)}}
    wait = f"while ! [ -e {tmp_path / 'go'} ]; do sleep 0.02; done"
    async with opened(tmp_path / "state", nodes=1) as (cluster, seen):
        await cluster.create(job("first", Master=role(f"{wait}; {COUNT}", resources=resources)))
        await seen.phase("Running", "first-master-0")
        await cluster.create(job("next", Master=role(ADD, resources=resources)))
        await cluster.create(job("without", Master=role(COUNT)))
        await seen.phase("Succeeded", "without-master-0")
        assert seen.phases["next-master-0"] == "Pending"
        (tmp_path / "go").touch()
        await seen.phase("Succeeded", "first-master-0", "next-master-0")
        shown = [await lines(cluster, f"{name}-master-0") for name in ("first", "next", "without")]
    assert shown == [[str(gpus)], ["2.0"], ["0"]]


def test_pod_starts_a_process_for_each_gpu():
    assert topology.count_pod_processes("gpu", {}) == torch.cuda.device_count()
    assert topology.count_pod_processes("auto", {}) == torch.cuda.device_count()
