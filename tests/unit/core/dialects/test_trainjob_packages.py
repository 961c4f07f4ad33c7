"""Tests of the program that installs packages before a task, and of the containers that run it."""

import os
import subprocess

import pytest
from builders import reject
from train_job_objects import REPLICAS, get_jobset, plan_train_job
from wheels import build_wheel, create_environment

from backend_plugin.core.judging.terminations import classify_exit_code
from backend_plugin.core.package_installation import PROGRAM, find_failure, with_packages
from kfpytorch_common.causes import Cause

SHOWN = "import tiny_one, sys; print(tiny_one.VERSION, tiny_one.__file__, *sys.argv[1:])"


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory):
    root = create_environment(tmp_path_factory.mktemp("image"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IMAGE_PROGRAMS", str(root / "bin"))
        yield


def install(folder, packages, *command):
    container = with_packages({"args": [*command]}, packages, "")
    variables = {
        **os.environ,
        "PATH": f"{os.environ['IMAGE_PROGRAMS']}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONPATH": str(folder),
        "TMPDIR": str(folder),
    }
    return subprocess.run(container["args"], env=variables, capture_output=True, text=True, check=False)


def test_missing_packages_are_installed_before_the_command(tmp_path):
    build_wheel(tmp_path, "tiny_two", "0.5")
    build_wheel(tmp_path, "tiny_one", "1.2", "tiny_two", "packaging>=21")
    (tmp_path / "code.py").write_text("raise SystemExit('a module of the task')")
    shown = f"{SHOWN}; import tiny_two, packaging; print(tiny_two.VERSION, packaging.__file__)"
    ended = install(tmp_path, ["tiny_one>=1"], "python3", "-c", shown, "a b")
    assert ended.returncode == 0, ended.stderr
    (version, path, *words), (other, packaging) = (line.split() for line in ended.stdout.splitlines())
    assert (version, words, other) == ("1.2", ["a", "b"], "0.5")
    assert path.startswith(f"{tmp_path}/kfpytorch-")
    assert not packaging.startswith(str(tmp_path))


def test_installed_packages_need_no_installation(tmp_path):
    ended = install(tmp_path, ["packaging>=21"], "python3", "-c", "print('run')")
    assert (ended.returncode, ended.stdout) == (0, "run\n"), ended.stderr


def test_missing_command_has_the_exit_code_of_a_shell(tmp_path):
    assert install(tmp_path, ["packaging"], "no-such-program").returncode == 127


@pytest.mark.parametrize(
    ("code", "message"), [(1, "kfpytorch: packages cannot be installed: no"), (78, "no")]
)
def test_other_terminations_are_not_failed_installations(code, message):
    assert find_failure(code, message) == ""
    assert classify_exit_code(code, {}, message) is Cause.USER_ERROR


def get_trainer(packages, **more):
    planned = plan_train_job({**REPLICAS, "kfpytorch": {"trainJob": {"packages": packages, **more}}})
    if not planned.prerequisites:
        return planned.job["spec"]["trainer"]
    (replicated,) = get_jobset(planned)["replicatedJobs"]
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("more", [{}, {"runtime": "torch-distributed"}])
def test_each_node_installs_the_packages_before_the_command_of_the_task(more):
    before, after = get_trainer([], **more), get_trainer(["einops>=0.8"], **more)
    installer = ["python3", "-I", "-c", PROGRAM, '["einops>=0.8"]']
    assert after == {**before, "args": [*installer, *before["args"]]}


def test_command_replaces_the_entry_point_of_the_image():
    changed = with_packages({"command": ["sh", "-c"], "args": ["true"]}, ["a"], "")
    assert (changed["command"][:2], changed["args"]) == (["python3", "-I"], ["sh", "-c", "true"])


def test_packages_without_a_command_of_the_task_are_rejected():
    (problem,) = reject(with_packages, {"name": "node"}, ["a"], "pod.spec.containers[node]")
    assert problem.field == "pod.spec.containers[node].args"


@pytest.mark.parametrize("package", ["", "--index-url=http://x", "a b", "./a.whl"])
def test_pip_options_are_rejected_as_packages(package):
    (problem,) = reject(get_trainer, ["a", package])
    assert problem.field == "custom.kfpytorch.trainJob.packages[1]"
