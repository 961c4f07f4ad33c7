# ruff: noqa: E501 - a row a case
"""``kfpytorch render`` on the command line, and with ``--batch`` for JSON lines."""

import codecs
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import a_template
from click.testing import CliRunner, Result
from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from flyteidl.admin.task_pb2 import TaskSpec
from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict

from backend_plugin.cli import render_requests
from backend_plugin.cli.commands import kfpytorch
from backend_plugin.cli.json_lines import encode_json, reply_to_line

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-c", "from backend_plugin.cli import main; main()", "render"]
TASKS = """
import sys
from flytekit import task
from flytekitplugins.kfpytorch import PyTorch, Worker

@task(task_config=PyTorch(worker=Worker(replicas=1)), shared_memory=True)
def train(epochs: int) -> int:
    return epochs

@task(task_config=PyTorch(worker=Worker(replicas=2)))
def train_longer() -> None: ...

assert "torch" not in sys.modules
"""
DATA = "s3://bucket/metadata/propeller/project-development-example/n0/data"
RAW = "s3://bucket/raw/example-n0-0"
ARGUMENTS = {
    "--epochs={{.inputs.epochs}}": "--epochs=3",
    "{{ .Inputs.epochs }}": "3",
    "{{.input}} {{.taskTemplatePath}}": f"{DATA}/inputs.pb {DATA}/task.pb",
    "{{.inputPrefix}} {{ .outputPrefix }}": f"{DATA} {DATA}/0",
    "{{.rawOutputDataPrefix}} {{.checkpointOutputPrefix}}": f"{RAW} {RAW}/_flytecheckpoints",
    "{{.prevCheckpointPrefix}}": '""',
    "{{.perRetryUniqueKey}}": "example-n0-0",
    "{{ $PerRetryUniqueKey }}-{{.namespace}}": "example-n0-0-project-development",
    "{{.other}}": "{{.other}}",
}
TEMPLATE = a_template(
    {"workerReplicas": {"replicas": 1}},
    id={"name": "module.train"},
    metadata={"interruptible": True},
    interface={"inputs": {"variables": {"epochs": {"type": {"simple": "INTEGER"}}}}},
    container={"image": "i", "args": [*ARGUMENTS]},
)
TWO = a_template({"workerReplicas": {"replicas": 2}, "masterReplicas": {"replicas": 1}}, id={"name": "two"})
TEMPLATES = """
kind: PodTemplate
metadata: {name: gang, namespace: flyte}
template: {spec: {schedulerName: gang-scheduler, containers: [{name: default, image: unused}]}}
"""
NO_TYPES = {"taskTypeVersion": "x", "type": 3, "interface": {"inputs": 3}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = MessageToJson(TEMPLATE)
    files = {
        "tasks.py": TASKS.encode(),
        "task.pb": TEMPLATE.SerializeToString(),
        "two.pb": TWO.SerializeToString(),
        "spec.pb": TaskSpec(template=TEMPLATE).SerializeToString(),
        "task.json": text.encode(),
        "spec.json": MessageToJson(TaskSpec(template=TEMPLATE)).encode(),
        "windows.json": codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode(),
        "package.tgz": package("0_module.train_1.pb", "1_module.wf_2.pb"),
        "empty.pb": b"",
        "workflow.pb": b"\n\x04\x08\x01",
        "torn.tgz": b"\x1f\x8b torn",
        "broken.json": b"{",
        "settings.yaml": b"plugins: {k8s: {default-labels: {from: settings}}}",
        "gang.yaml": b"default-pod-template-name: gang",
        "wrong.yaml": b"default-lables: {}",
        "templates.yaml": TEMPLATES.encode(),
        "auto.yaml": b"kfpytorch: {gang: {scheduler: auto}}",
        "capabilities.yaml": b'{apis: {scheduling.x-k8s.io: [v1alpha1]}, operator-scheduler: ""}',
        "no-capabilities.yaml": b"apis: 3",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def package(*names: str) -> bytes:
    data, written = TaskSpec(template=TEMPLATE).SerializeToString(), io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


def render(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(kfpytorch, ["render", *arguments], input=stdin)


def rendered(*arguments: str, stdin: bytes = b"") -> dict:
    done = render(*arguments, stdin=stdin)
    assert (done.exit_code, done.stderr) == (0, "")
    return yaml.safe_load(done.stdout)


def process(folder: Path, *arguments: str, stdout: Any = subprocess.PIPE, **environment: str) -> Any:
    path = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(folder), **environment}
    command = [*COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, env=path, stdout=stdout, stderr=subprocess.PIPE, check=False)


def test_python_file_is_rendered_identically_without_torch(folder: Path) -> None:
    first, second = (
        process(folder, "tasks.py", "train", "--image", "image:1", PYTHONHASHSEED=seed) for seed in "12"
    )
    assert (first.returncode, first.stderr.decode(), first.stdout) == (0, "", second.stdout)
    job = yaml.safe_load(first.stdout)
    assert (job["kind"], job["metadata"]["name"]) == ("PyTorchJob", "example-n0-0-fa3852ff903b")


def test_output_bytes_are_equal_in_each_locale(folder: Path) -> None:
    (folder / "settings.yaml").write_text("default-annotations: {from: Zürich}", encoding="utf-8")
    arguments = ("task.pb", "-i", "epochs=1", "-s", "settings.yaml")
    done = process(folder, *arguments, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == render(*arguments).stdout_bytes
    assert "from: Zürich".encode() in done.stdout


def test_closed_output_pipe_causes_no_error_message(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process(folder, "task.pb", "-i", "epochs=1", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    "file", ["task.pb", "spec.pb", "task.json", "spec.json", "windows.json", "package.tgz"]
)
def test_task_is_rendered_with_its_arguments_from_each_file_format(folder: Path, file: str) -> None:
    job = rendered(file, "train", "-i", "epochs=3")
    assert [job] == json.loads(render(file, "train", "-i", "epochs=3", "-o", "json").stdout)
    assert job == rendered("-", "module.train", "-i", "epochs=3", stdin=TEMPLATE.SerializeToString())
    assert job["metadata"]["labels"]["interruptible"] == "true"
    (master,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert master["args"] == [*ARGUMENTS.values()]


def test_settings_file_of_the_platform_is_applied(folder: Path) -> None:
    for file, stdin in (("settings.yaml", b""), ("-", (folder / "settings.yaml").read_bytes())):
        job = rendered("task.pb", "-i", "epochs=1", "--settings", file, stdin=stdin)
        assert job["metadata"]["labels"]["from"] == "settings"


def test_default_pod_template_is_applied_and_a_missing_one_is_a_warning(folder: Path) -> None:
    options = ("task.pb", "-i", "epochs=1", "-s", "gang.yaml")
    job = rendered(*options, "--pod-templates", "templates.yaml")
    (spec, _) = (each["template"]["spec"] for each in job["spec"]["pytorchReplicaSpecs"].values())
    assert spec["schedulerName"] == "gang-scheduler"
    done = render(*options)
    assert (done.exit_code, done.stderr.count("warning: default-pod-template-name")) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "the file is missing; write: kfpytorch render FILE TASK"),
        (["task.pb", "--batch"], 2, "--batch reads all input from stdin; write it without FILE"),
        (["--batch", "-s", "settings.yaml"], 2, "write it without settings"),
        (["task.py", "train"], 2, "task.py: there is no such file"),
        (["nothing.xyz"], 2, "nothing.xyz: No such file or directory"),
        (["task.pb", "trian"], 2, "task.pb: has no task trian; did you mean train?"),
        (["task.pb", "x"], 2, "task.pb: has no task x; it has module.train"),
        (["empty.pb"], 1, "empty.pb: is not a task template or task spec"),
        (["workflow.pb"], 1, "a file *_1.pb that pyflyte wrote"),
        (["-"], 1, "stdin: is not a task template or task spec"),
        (["torn.tgz"], 1, "torn.tgz: is not an archive that pyflyte package wrote"),
        (["broken.json"], 1, "broken.json: is not a task template as protobuf JSON"),
        (["task.pb"], 2, "the task's arguments contain {{.inputs.epochs}}; add --input epochs=VALUE"),
        (["task.pb", "-i", "epoch=3"], 2, "--input epoch: module.train has no such input; it has epochs"),
        (["task.pb", "-i", "epochs=1", "-s", "wrong.yaml"], 1, "did you mean default-labels?"),
        (["task.pb", "--kubeconfig", "x"], 2, "--kubeconfig has no effect without --dry-run=server"),
        (["task.pb", "--context", "x"], 2, "--context has no effect without --dry-run=server"),
        (["task.pb", "-i", "epochs=1", "--pod-templates", "none.yaml"], 2, "No such file"),
    ],
)
def test_invalid_input_is_explained(folder: Path, arguments: list[str], code: int, message: str) -> None:
    done = render(*arguments)
    text = " ".join(done.stderr.replace("│", " ").split())
    assert (done.exit_code, done.stdout, message in text) == (code, "", True), text


def test_error_message_is_not_wrapped(folder: Path) -> None:
    done = CliRunner(env={"COLUMNS": "20"}).invoke(kfpytorch, ["render", "task.pb", "-i", "epochs"])
    assert done.stderr == "Error: --input epochs: has no value; write --input epochs=VALUE\n"
    done = render("-", stdin=MessageToJson(a_template({"workerReplicas": {"replicas": -1}})).encode())
    message = "custom.workerReplicas.replicas: -1\n  is negative; write 0 or more, or leave it out\n"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", message)


def test_scheduling_explanation_is_printed_to_stderr(folder: Path) -> None:
    done = render("task.pb", "-i", "epochs=1", "--settings", "auto.yaml", "--explain-scheduling")
    assert done.stderr.endswith("; the capabilities of the cluster are not known.\n")
    found = ("two.pb", "--settings", "auto.yaml", "--capabilities", "capabilities.yaml")
    done = render(*found, "--explain-scheduling")
    assert done.stderr.startswith("Gangs are for coscheduling (backend): ")
    assert [each["kind"] for each in yaml.safe_load_all(done.stdout)] == ["PyTorchJob", "PodGroup"]
    assert render(*found).stdout == done.stdout
    done = render("two.pb", "--capabilities", "no-capabilities.yaml")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: capabilities no-capabilities.yaml: ")


ONE = MessageToDict(a_template({"workerReplicas": {"replicas": 1}}))
METADATA = {
    "taskExecutionId": {
        "nodeExecutionId": {"nodeId": "n0", "executionId": {"project": "p", "domain": "d", "name": "f1"}},
        "retryAttempt": 2,
    },
    "namespace": "p-d",
    "labels": {"execution-id": "f1"},
    "k8sServiceAccount": "trainer",
}
REQUEST = {"id": "a", "template": ONE, "metadata": METADATA, "output_prefix": "s3://b/f1/n0/data/2"}


def answer(request: Any) -> Any:
    return json.loads(reply_to_line(render_requests.render_manifests, json.dumps(request).encode()))


def test_each_line_gets_a_response_with_its_id_before_the_next_request() -> None:
    invalid = {"id": 7, "template": {**ONE, "custom": {}}}
    good = (REQUEST, "a", "manifests")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*COMMAND, "--batch"], cwd=ROOT, **streams) as asked:
        for request, id_, content in (good, (invalid, 7, "problems"), ([], None, "problems"), good):
            asked.stdin.write(b"\n" + encode_json(request) + b"\n")  # An empty line gets no response.
            asked.stdin.flush()
            reply = json.loads(asked.stdout.readline())
            assert (reply["id"], set(reply)) == (id_, {"id", content})
        assert (asked.communicate(), asked.returncode) == ((b"", b""), 0)


def test_request_may_contain_metadata_settings_and_pod_templates() -> None:
    (job,) = answer({**REQUEST, "settings": {"default-labels": {"a": "b"}}, "pod_templates": []})["manifests"]
    assert job["metadata"]["name"].startswith("f1-n0-2-")
    assert (job["metadata"]["namespace"], job["metadata"]["labels"]["a"]) == ("p-d", "b")
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] == "trainer"


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        ([], [""]),
        ({}, ["template"]),
        ({"template": 3}, ["template"]),
        ({**REQUEST, "metadata": []}, ["metadata"]),
        ({**REQUEST, "output_prefix": 3}, ["output_prefix"]),
        ({**REQUEST, "settings": 3}, ["settings"]),
        ({**REQUEST, "settings": {"default-lables": {}}}, ["settings.default-lables"]),
        ({**REQUEST, "pod_templates": {}}, ["pod_templates"]),
        ({**REQUEST, "pod_templates": [1]}, ["pod_templates[0]"]),
        ({"template": {**ONE, "custom": {}}}, ["custom"]),
        ({**REQUEST, "template": NO_TYPES}, ["template.taskTypeVersion", "template.type", "template.interface.inputs"]),
        ({**REQUEST, "metadata": {"interruptible": 3, "labels": {"a": 1}}}, ["metadata.interruptible", "metadata.labels"]),
    ],
)  # fmt: skip
def test_invalid_request_is_reported_with_its_fields(request_: Any, fields: list[str]) -> None:
    assert [each["field"] for each in answer(request_)["problems"]] == fields


def test_optional_fields_may_be_null() -> None:
    keys = ("metadata", "output_prefix", "settings", "pod_templates")
    assert answer({**REQUEST, **dict.fromkeys(keys)}) == answer({"id": "a", "template": ONE})


def test_metadata_may_be_in_snake_case() -> None:
    snake = MessageToDict(ParseDict(METADATA, TaskExecutionMetadata()), preserving_proto_field_name=True)
    assert set(snake) == {"task_execution_id", "namespace", "labels", "k8s_service_account"}
    assert answer({**REQUEST, "metadata": snake}) == answer(REQUEST)


@pytest.mark.parametrize("id_", [None, True, 1.5, 2**70, "", [1, {"a": None}], {}], ids=repr)
def test_id_is_returned_unchanged(id_: Any) -> None:
    assert answer({**REQUEST, "id": id_})["id"] == answer({"id": id_})["id"] == id_


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 7, "template": {"custom": NaN}}',
        b'{"id": "\\ud800"}',
        b"[7]",
        b"NaN",
        b"{torn",
        b'{"id": 1e999}',
        b'{"id": "\xff"}',
        b'{"id": ' + b"[" * 100_000,
    ],
)
def test_response_to_invalid_json_has_no_id(line: bytes) -> None:
    reply = json.loads(reply_to_line(render_requests.render_manifests, line))
    assert (reply["id"], [each["field"] for each in reply["problems"]]) == (None, [""])


def test_line_with_bom_and_crlf_is_read() -> None:
    line = codecs.BOM_UTF8 + json.dumps(REQUEST).encode() + b"\r\n"
    assert json.loads(reply_to_line(render_requests.render_manifests, line)) == answer(REQUEST)


def test_internal_error_is_reported_for_its_line_only() -> None:
    def defect(request: Any) -> Any:
        raise KeyError(request["id"])

    reply = json.loads(reply_to_line(defect, b'{"id": 1}'))
    assert (reply["id"], [each["value"] for each in reply["problems"]]) == (1, ['"KeyError: 1"'])


def test_batch_request_may_contain_capabilities() -> None:
    request = {"template": MessageToDict(TWO), "settings": {"kfpytorch": {"gang": {"scheduler": "auto"}}}}
    (job,) = answer({**request, "capabilities": {"admission-scheduler": "yunikorn"}})["manifests"]
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] == "yunikorn"
    (problem,) = answer({**request, "capabilities": {"admision": "yunikorn"}})["problems"]
    assert "Object contains unknown field `admision`" in problem["message"]
