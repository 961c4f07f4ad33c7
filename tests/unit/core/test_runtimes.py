"""Runtimes: how they are read and found, and the job that lists the packages of one."""

import re
import subprocess
import sys

import pytest

from backend_plugin.core import names, runtimes, task_annotation
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.runtimes import PackageJob, Runtime

SUPPORT = DIALECTS["TrainJob"].runtimes
assert SUPPORT is not None
OURS = Runtime(name="a", kind="TrainingRuntime", namespace="one")
THEIRS = Runtime(name="a", kind="TrainingRuntime", namespace="two")
SHARED = Runtime(name="a", kind="ClusterTrainingRuntime")
MANY = [Runtime(name=f"r{number}", kind="ClusterTrainingRuntime") for number in range(8)]


def replicated(name: str, step: str = "", limits=None):
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    spec = {"containers": [{"name": "node", "image": "image:1", "resources": {"limits": limits or {}}}]}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": spec}}}}


def a_runtime(*jobs, policy=None, **metadata):
    spec = {"mlPolicy": policy or {}, "template": {"spec": {"replicatedJobs": [*jobs]}}}
    metadata = {"name": "r", "namespace": "ns", **metadata}
    return {"kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def test_runtime_is_read():
    manifest = a_runtime(
        replicated("dataset-initializer", "dataset-initializer"),
        replicated("node", "trainer", {"nvidia.com/gpu": 2, "cpu": "4"}),
        replicated("other"),
        policy={"numNodes": 3, "torch": {"numProcPerNode": "auto"}},
        labels={"trainer.kubeflow.org/framework": "torch", names.IDENTITY: "x"},
    )
    named = {"name": "r", "kind": "TrainingRuntime", "namespace": "ns", "job": "r", "framework": "torch"}
    node = {"nodes": 3, "processes": "auto", "device": "gpu", "device_count": "2", "role": "node"}
    expected = Runtime(**named, **node, image="image:1", initializers=("dataset-initializer",))
    assert SUPPORT.read(manifest) == expected


@pytest.mark.parametrize("value", [{}, {"spec": None}, {"spec": {"template": 1}}, {"metadata": []}])
def test_malformed_runtime_is_read_as_an_empty_one(value):
    found = SUPPORT.read(value)
    assert (found.role, found.image, found.nodes, found.device, found.job) == ("", "", 1, "", "")


def test_processes_per_node_are_read_from_the_policy():
    policies = ({}, {"mpi": {"numProcPerNode": 2}}, {"numNodes": 2, "torch": {}}, {"torch": None})
    assert [SUPPORT.read(a_runtime(policy=each)).processes for each in policies] == ["", "2", "", ""]


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"memory": "1Gi"}, ("", "")),
        ({"cpu": "500m"}, ("cpu", "500m")),
        ({"cpu": 8, "amd.com/gpu": "1"}, ("gpu", "1")),
        ({"nvidia.com/mig-1g.5gb": "1"}, ("mig-1g.5gb", "1")),
        ({"google.com/tpu": 4}, ("tpu", "4")),
    ],
)
def test_device_of_a_node_is_read_from_its_limits(amounts, expected):
    found = SUPPORT.read(a_runtime(replicated("node", "trainer", amounts)))
    assert (found.device, found.device_count) == expected


@pytest.mark.parametrize(
    ("namespace", "among", "expected"),
    [
        ("one", [SHARED, OURS, THEIRS], OURS),
        ("three", [SHARED, OURS, THEIRS], SHARED),
        (None, [SHARED, OURS], OURS),
    ],
)
def test_runtime_of_the_namespace_takes_precedence(namespace, among, expected):
    assert runtimes.find_runtime("a", namespace, among) is expected


@pytest.mark.parametrize(
    ("name", "namespace", "among", "error", "message"),
    [
        ("a", None, [THEIRS, OURS], runtimes.AmbiguousRuntime, "one, two"),
        ("x", "one", [], runtimes.RuntimeNotFound, "no runtime x, and no other runtime$"),
        ("x", "one", [OURS], runtimes.RuntimeNotFound, "no runtime x; the existing runtimes are a$"),
        ("x", "one", MANY, runtimes.RuntimeNotFound, "are r0, r1, r2, r3, r4, r5 and 2 more$"),
    ],
)
def test_error_about_a_runtime_lists_namespaces_or_runtimes(name, namespace, among, error, message):
    with pytest.raises(error, match=message):
        runtimes.find_runtime(name, namespace, among)


def test_packages_of_unsupported_runtimes_cannot_be_listed():
    for fields in ({}, {"role": "node", "initializers": ("model",)}):
        with pytest.raises(runtimes.UnsupportedRuntime):
            runtimes.require_packages(Runtime(name="a", kind="TrainingRuntime", **fields))


@pytest.mark.parametrize("name", ["torchtune-llama3.2-1b", "a" * 60, "x" * 19 + ".y", "0"])
def test_job_name_is_valid_and_matches_the_pattern_of_our_jobs(name):
    found = runtimes.build_job_name(name, "0123456789ab")
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", found)
    assert len(found) <= DIALECTS["TrainJob"].longest_name
    assert re.fullmatch(names.NAME, found)


@pytest.mark.parametrize("device", ["", "cpu", "gpu"])
def test_package_job_has_one_node_of_the_runtime_and_its_gpus(device):
    runtime = Runtime(name="a", kind="ClusterTrainingRuntime", role="launcher", device=device)
    runtimes.require_packages(runtime)
    job = SUPPORT.build_package_job(runtime, PackageJob(name="p", namespace="ns", seconds=90))
    reference, trainer = job["spec"]["runtimeRef"], job["spec"]["trainer"]
    assert (reference["name"], reference["kind"]) == ("a", "ClusterTrainingRuntime")
    assert (trainer["numNodes"], trainer["command"][:2]) == (1, ["sh", "-c"])
    assert ("resourcesPerNode" in trainer) == (device != "gpu")
    (patch,) = job["spec"]["runtimePatches"]
    (patched,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert patched["name"] == "launcher"
    label = job["metadata"]["labels"][names.IDENTITY]
    assert patched["template"]["spec"]["template"]["metadata"]["labels"][names.IDENTITY] == label
    annotations = job["metadata"]["annotations"]
    assert names.has_output_prefix(job, annotations[names.OUTPUT_PREFIX])
    assert task_annotation.read(annotations, "ns").deadlines.active_seconds == 90
    assert options.decode(annotations[options.ANNOTATION]).ttl_seconds is not None


def test_program_reports_the_packages_of_its_interpreter(tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho first; echo second\n")
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{sys.prefix}/bin:/usr/bin:/bin"}
    command = [*runtimes.COMMAND, runtimes.PROGRAM]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = runtimes.parse_report(["noise", "kfpytorch: no JSON", *done.stdout.splitlines()])
    assert found.python == sys.version
    assert {"pytest", "msgspec"} <= found.packages.keys()
    assert [*found.packages] == sorted(found.packages, key=str.lower)
    assert found.gpus == "first\nsecond"


def test_incomplete_report_is_an_error():
    with pytest.raises(runtimes.PackagesUnknown):
        runtimes.parse_report(['kfpytorch: ["python", "3.11"]', 'kfpytorch: ["end", 1]'])
