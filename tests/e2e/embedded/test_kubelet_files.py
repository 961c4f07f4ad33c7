"""Pods that replace files in their own directory."""

import asyncio

import pytest

from e2e.embedded.running_pods import get_terminated, node, pod, shell, uid

PUT = {
    "a pipe": "mkfifo {0}",
    "a directory": "mkdir {0}",
    "a link to nowhere": "ln -s /nowhere/file {0}",
    "a link to a pipe": "mkfifo {0}.pipe; ln -s {0}.pipe {0}",
    "a device": "mknod {0} c 1 3 || ln -s /dev/null {0}",
}
FILES = ("../../state.json", "../../state.json.new", "/dev/termination-log", "../../logs/main/0.0.log")


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
async def test_pod_that_replaces_shim_files_still_ends(kubelet, put):
    script = "; ".join(f"rm -f {file}; {put.format(file)}" for file in FILES)
    one = pod(shell(f"{script}; exit 3"))
    status = await kubelet.ran(one)
    assert (status["phase"], get_terminated(status)["exitCode"]) == ("Failed", 3)
    assert await asyncio.wait_for(kubelet.lines(one), 10) == []


async def test_container_restarts_although_it_replaced_its_termination_log(kubelet):
    script = "echo said >> /dev/termination-log; rm /dev/termination-log; mkfifo /dev/termination-log; exit 1"
    one = pod(shell(script), policy="OnFailure")
    await kubelet.run(one)
    await kubelet.restarted(one, 2)


async def test_symlinked_working_directory_is_not_followed_on_restart(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    script = f'd=$(basename "$PWD"); cd ..; mv $d moved; ln -s {mine} $d; exit 1'

    async with node(tmp_path) as kubelet:
        one = pod(shell(script), policy="OnFailure")
        await kubelet.run(one)
        await kubelet.restarted(one, 2)
        assert (mine / "file").read_text() == "mine"
        await kubelet.kubelet.remove_pod(uid(one))
        assert not (kubelet.root / uid(one)).exists()
    assert (mine / "file").read_text() == "mine"
