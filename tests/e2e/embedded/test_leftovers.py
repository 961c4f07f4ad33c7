"""Processes of a pod whose shim was killed."""

import subprocess

import psutil
import pytest

from backend_plugin.embedded.shim.portable_tree import kill_leftovers

pytestmark = pytest.mark.linux
PROGRAM = "env -i sh -c 'sleep 1000 & echo $!; wait' & wait"


def test_descendants_with_an_empty_environment_are_killed_with_their_parents() -> None:
    environment = {"PATH": "/usr/bin:/bin", "KFPYTORCH_POD": "the-pod/pytorch"}
    with subprocess.Popen(["sh", "-c", PROGRAM], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        sleeping = psutil.Process(int(process.stdout.readline()))
        try:
            assert "KFPYTORCH_POD" not in sleeping.environ()
            kill_leftovers(["another-pod"])
            assert sleeping.is_running()
            kill_leftovers(["another-pod", "the-pod"])
            psutil.wait_procs([sleeping], timeout=30)
            assert not sleeping.is_running() or sleeping.status() == psutil.STATUS_ZOMBIE
        finally:
            if sleeping.is_running():
                sleeping.kill()
