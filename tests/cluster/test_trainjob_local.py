"""Local runs of tasks of jax and MPI, with jax from PyPI and Open MPI of the distribution."""

import os
import sys
from pathlib import Path

import pytest
import training_tasks
from rig.process import run_command
from rig.tools import find_packages


def run_locally(workflow, env, *inputs):
    """Run a workflow with `pyflyte run`; `env` are further variables."""
    pyflyte = Path(sys.executable).with_name("pyflyte")
    return run_command(pyflyte, "run", training_tasks.__file__, workflow, *inputs, env={**os.environ, **env})


@pytest.fixture(scope="module")
def open_mpi(mpi_packages, tmp_path_factory):
    """The variables with which the unpacked Open MPI runs."""
    root = mpi_packages / "usr"
    programs = tmp_path_factory.mktemp("programs")
    (programs / "mpirun").symlink_to(root / "bin/orterun")
    (libraries,) = (root / "lib").glob("*-linux-gnu")
    return {
        "OPAL_PREFIX": str(root),
        "LD_LIBRARY_PATH": str(libraries),
        "PATH": f"{programs}:{root / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{Path(training_tasks.__file__).parent}:{root / 'lib/python3/dist-packages'}",
    }


def test_mpi_ranks_reduce(open_mpi):
    # A local run ignores the nodes of the environment.
    env = {**open_mpi, "OMPI_MCA_orte_default_hostfile": "/absent"}
    done = run_locally("reduces_with_mpi", env, "--value", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "18"
    assert "4 ranks under mpirun on this machine" in done.stderr


def test_failed_mpi_rank_is_reported_with_its_line(open_mpi):
    done = run_locally("reduces_with_mpi", open_mpi, "--value", "-1")
    assert done.returncode == 1
    assert "failed on rank 3" in done.stderr
    assert "ValueError: the learning rate is negative" in done.stderr


def test_missing_open_mpi_is_reported_with_the_packages_to_install(tmp_path):
    done = run_locally("reduces_with_mpi", {"PATH": str(tmp_path)}, "--value", "3")
    assert done.returncode == 1
    assert all(each in done.stderr for each in ("apt install openmpi-bin", "pip install mpi4py"))


def test_jax_processes_reduce():
    packages = find_packages("jax")
    env = {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(Path(training_tasks.__file__).parent), str(packages)]),
    }
    done = run_locally("reduces_with_jax", env, "--value", "3", "--packages", str(packages))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "18"
