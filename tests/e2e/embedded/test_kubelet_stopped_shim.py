"""Pods end although their shims are stopped or the server cannot open files."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys

import pytest

from e2e.embedded.running_pods import marked, node, pod, python, shell, shim_of, uid

PATIENCE = {"shim_patience": 0.3}
impatient = pytest.mark.parametrize("options", [PATIENCE], ids=["impatient"])


@contextlib.contextmanager
def no_more_files():
    """Prevent this process from opening files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def stopped(kubelet, of):
    await kubelet.running(of)
    os.kill(shim_of(min(marked(kubelet.root))), signal.SIGSTOP)


@impatient
async def test_pod_of_a_stopped_shim_ends_after_its_grace_period(kubelet):
    of = pod(python("import os, time; os.fork(); os.setsid() if os.getppid() == 1 else 0; time.sleep(600)"))
    await stopped(kubelet, of)
    status = await kubelet.terminated(of, 0.1)
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert marked(kubelet.root) == []


@pytest.mark.parametrize("how", ["lost", "forgotten", "left to the end"])
@impatient
async def test_stopped_shim_does_not_block_pod_removal_or_close(kubelet, how):
    of, other = pod(shell("sleep 600")), pod(shell("sleep 600"))
    await stopped(kubelet, of)
    await kubelet.run(other)
    if how == "lost":
        kubelet.kubelet.kill_pods([uid(of), uid(other)])
    if how == "forgotten":
        await kubelet.kubelet.remove_pod(uid(of))
        assert not (kubelet.root / uid(of)).exists()


async def test_only_the_stopped_shim_of_an_earlier_server_is_killed(tmp_path):
    of, other = pod(shell("sleep 600")), pod(shell("sleep 600"))

    async with node(tmp_path, durable=True, **PATIENCE) as first:
        await stopped(first, of)
        await first.running(other)
        await first.kubelet.close()
        async with node(tmp_path, **PATIENCE) as second:
            await second.kubelet.adopt_pods([of, other])
            # Another process with the pod's path in its arguments, which must survive.
            words = [sys.executable, "-c", "import time; time.sleep(600)", str(second.root / uid(of))]
            with subprocess.Popen(words) as reader:
                status = await second.terminated(of, 0)
                assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
                assert reader.poll() is None
                reader.kill()
            assert second.reported.statuses[uid(other)][-1]["phase"] == "Running"


@impatient
@pytest.mark.parametrize("how", ["terminate", "lose"])
async def test_pod_ends_although_open_files_are_exhausted(how, kubelet):
    of = pod(shell("sleep 600"))
    await kubelet.running(of)
    with no_more_files():
        if how == "terminate":
            await kubelet.kubelet.terminate_pod(uid(of), 0)
        else:
            kubelet.kubelet.kill_pods([uid(of)])
    while marked(kubelet.root):
        await asyncio.sleep(0.01)


async def test_pod_status_is_read_after_open_files_are_available(tmp_path, kubelet):
    of = pod(shell(f"while ! [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"))
    await kubelet.running(of)
    (tmp_path / "go").touch()
    with no_more_files():
        await asyncio.sleep(0.5)
    status = await kubelet.phase(of, "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
