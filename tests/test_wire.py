"""The generated protobuf code is current and works with every supported protobuf runtime."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROTOS = ROOT / "protos"
PROTOC = Path(sys.executable).with_name("protoc")


def test_generated_code_is_current(tmp_path: Path) -> None:
    files = sorted(PROTOS.rglob("*.proto"))
    subprocess.run(
        [PROTOC, f"--proto_path={PROTOS}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *files],
        check=True,
    )
    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2.py*")}
    assert fresh == {path.relative_to(PROTOS): path.read_text() for path in PROTOS.rglob("*_pb2.py*")}


@pytest.mark.parametrize("path", sorted(PROTOS.rglob("*_pb2.py")), ids=lambda path: path.name)
def test_generated_code_requires_no_runtime_version(path: Path) -> None:
    assert "runtime_version" not in path.read_text()


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_generated_code_runs_with_each_protobuf_implementation(implementation: str) -> None:
    code = (
        "from kfpytorch_idl.v1 import job_ref_pb2, task_pb2\n"
        "ref = job_ref_pb2.JobRef.FromString(job_ref_pb2.JobRef(uid='').SerializeToString())\n"
        "assert ref.HasField('uid') and not ref.HasField('name')\n"
        "assert not task_pb2.TaskExtension().HasField('gang')"
    )
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT, env=environment)
