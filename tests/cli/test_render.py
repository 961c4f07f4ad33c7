"""``kfpytorch render`` as people type it: real processes."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from builders import a_template
from flyteidl.admin.task_pb2 import TaskSpec
from google.protobuf.json_format import MessageToJson

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-c", "from backend_plugin.cli import main; main()", "render"]
TASKS = """
import sys
from flytekit import ImageSpec, task
from flytekitplugins.kfpytorch import Master, PyTorch, Worker

@task(task_config=PyTorch(worker=Worker(replicas=1)), shared_memory=True)
def train(epochs: int) -> int:
    return epochs

@task(task_config=PyTorch(Master(image=ImageSpec("built", packages=["nothing"])), Worker(replicas=2)))
def train_longer() -> None: ...

assert "torch" not in sys.modules
"""
TEMPLATE = a_template(
    {"workerReplicas": {"replicas": 1}},
    id={"name": "module.train"},
    interface={"inputs": {"variables": {"epochs": {"type": {"simple": "INTEGER"}}}}},
    container={"image": "i", "args": ["--epochs", "{{.inputs.epochs}}", "{{ .outputPrefix }}"]},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "task.pb").write_bytes(TEMPLATE.SerializeToString())
    (tmp_path / "spec.pb").write_bytes(TaskSpec(template=TEMPLATE).SerializeToString())
    (tmp_path / "task.json").write_text(MessageToJson(TEMPLATE))
    (tmp_path / "spec.json").write_text(MessageToJson(TaskSpec(template=TEMPLATE)))
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for name in ("0_module.train_1.pb", "1_module.wf_2.pb"):
            data = TaskSpec(template=TEMPLATE).SerializeToString()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    (tmp_path / "empty.pb").write_bytes(b"")
    (tmp_path / "torn.tgz").write_bytes(b"\x1f\x8b torn")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "settings.yaml").write_text("plugins: {k8s: {default-labels: {from: settings}}}")
    (tmp_path / "wrong.yaml").write_text("default-lables: {}")
    return tmp_path


def render(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    path = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(folder), "COLUMNS": "200"}
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=path, input=stdin, capture_output=True, check=False
    )


def rendered(folder: Path, *arguments: str, stdin: bytes = b"") -> dict:
    done = render(folder, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return yaml.safe_load(done.stdout)


def test_a_python_file_is_rendered_without_torch_the_same_every_time(folder: Path) -> None:
    first, second = (render(folder, "tasks.py", "train", "--image", "image:1") for _ in range(2))
    assert (first.returncode, first.stderr.decode(), first.stdout) == (0, "", second.stdout)
    job = yaml.safe_load(first.stdout)
    assert (job["kind"], job["metadata"]["name"]) == ("PyTorchJob", "example-n0-0-fa3852ff903b")


def test_an_image_of_a_spec_is_named_and_not_built(folder: Path) -> None:
    job = rendered(folder, "tasks.py", "train_longer", "--image", "image:1")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    (master,) = replicas["Master"]["template"]["spec"]["containers"]
    assert master["image"].startswith("built:") or "/built:" in master["image"]


@pytest.mark.parametrize("file", ["task.pb", "spec.pb", "task.json", "spec.json", "package.tgz"])
def test_whatever_holds_a_task_is_rendered_alike(folder: Path, file: str) -> None:
    job = rendered(folder, file, "train", "-i", "epochs=3")
    assert job == rendered(folder, "-", "train", "-i", "epochs=3", stdin=TEMPLATE.SerializeToString())
    (master,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert master["args"] == [
        "--epochs",
        "3",
        "s3://bucket/metadata/propeller/project-development-example/n0/data/0",
    ]


def test_json_says_the_same_as_yaml(folder: Path) -> None:
    done = render(folder, "task.pb", "-i", "epochs=3", "-o", "json")
    assert json.loads(done.stdout) == [rendered(folder, "task.pb", "-i", "epochs=3")]


def test_settings_are_the_platform_s(folder: Path) -> None:
    job = rendered(folder, "task.pb", "-i", "epochs=1", "--settings", "settings.yaml")
    assert job["metadata"]["labels"]["from"] == "settings"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "which file? Write: kfpytorch render FILE TASK"),
        (["task.py", "train"], 1, "task.py: there is no such file; did you mean task"),
        (["nothing.xyz"], 1, "nothing.xyz: there is no such file"),
        ([".", "train"], 1, ".: is a folder; name a file in it"),
        (["broken.py", "train"], 1, "broken.py cannot be imported: ModuleNotFoundError"),
        (["tasks.py"], 1, "tasks.py: which task? It has tasks.train, tasks.train_longer"),
        (["tasks.py", "trian"], 1, "tasks.py: has no task trian; did you mean train"),
        (["empty.pb"], 1, "empty.pb: is neither a task template nor a task spec"),
        (["torn.tgz"], 1, "torn.tgz: is no archive that pyflyte package wrote"),
        (["broken.json"], 1, "broken.json: is no task template as protobuf JSON"),
        (["task.pb", "-i", "epoch=3"], 1, "--input epoch: module.train has no such input; it has epochs"),
        (["task.pb", "-s", "none.yaml"], 1, "settings none.yaml: No such file or directory"),
        (["task.pb", "-s", "broken.json"], 1, "settings broken.json are no YAML"),
        (["task.pb", "-i", "epochs=1", "-s", "wrong.yaml"], 1, "default-lables"),
    ],
)
def test_bad_input_is_explained(folder: Path, arguments: list[str], code: int, said: str) -> None:
    done = render(folder, *arguments)
    text = " ".join(done.stderr.decode().replace("│", " ").split())
    assert (done.returncode, done.stdout, said in text) == (code, b"", True), text


def test_a_task_that_cannot_be_meant_is_explained(folder: Path) -> None:
    bad = MessageToJson(a_template({"workerReplicas": {"replicas": -1}}))
    done = render(folder, "-", stdin=bad.encode())
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        1,
        b"",
        "custom.workerReplicas.replicas: -1\n  is less than nothing; write 0 or more, or leave it out\n",
    )
