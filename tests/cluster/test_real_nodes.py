"""Pods of a real cluster are containers on real nodes: they train, fail, wait and lose their node."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import workflows
from rig import images, leftovers
from rig.api import Manifest, jobs, pods
from rig.process import Process, wait_until
from rig.propeller import NAMESPACE, PropellerOptions, RealPropeller
from rig.real_cluster import RealCluster

pytestmark = pytest.mark.timeout(300)

SPACE = "default"
PATIENCE = 120
NOT_RUN = 75
"""The exit status for tests that were not run."""

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}")
dist.destroy_process_group()
"""

ASK_THE_API_SERVER = """
import json, ssl, urllib.request
from pathlib import Path

account = Path("/var/run/secrets/kubernetes.io/serviceaccount")
asked = urllib.request.Request(
    "https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews",
    data=b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
    headers={
        "Authorization": "Bearer " + (account / "token").read_text(),
        "Content-Type": "application/json",
    },
)
trusted = ssl.create_default_context(cafile=account / "ca.crt")
with urllib.request.urlopen(asked, context=trusted) as answer:
    print(json.load(answer)["status"]["userInfo"]["username"])
"""

LEFT_ALONE = """
import sys, time
from pathlib import Path
from rig import namespaces
from rig.node import Node

folder = Path(sys.argv[1])
with namespaces.hub(folder) as hub, namespaces.station(hub, 1, folder / "node") as station:
    with Node(station, folder / "node", {}).containerd as containerd:
        (folder / "number").write_text(f"{hub.number} {hub.place.holder} {containerd.pid}")
        time.sleep(3600)
"""


def container(*command: str, image: str = images.PYTHON, **fields: Any) -> Mapping[str, Any]:
    return {"name": "pytorch", "image": image, "command": list(command), **fields}


def created(cluster: RealCluster, name: str, container: Mapping[str, Any]) -> None:
    cluster.plane.namespace(SPACE)
    cluster.admin.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
    )


def reaches(cluster: RealCluster, name: str, found: Callable[[Manifest], bool]) -> Manifest:
    """Wait for a condition of a pod, and return the pod."""
    path = pods(SPACE, name)
    wait_until(lambda: found(cluster.admin.get(path) or {}), PATIENCE, lambda: str(cluster.admin.get(path)))
    pod = cluster.admin.get(path)
    assert pod is not None
    return pod


def has_ended(pod: Manifest) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def log(cluster: RealCluster, name: str, namespace: str = SPACE) -> str:
    return cluster.admin.request("GET", f"{pods(namespace, name)}/log").text


def state(pod: Manifest) -> Mapping[str, Any]:
    """Return the state of the only container."""
    statuses: Sequence[Mapping[str, Any]] = pod.get("status", {}).get("containerStatuses") or [{}]
    found: Mapping[str, Any] = statuses[0].get("state", {})
    return found


def runs(process: int) -> bool:
    """True if the process runs and is not a zombie, which has no command line."""
    line = Path(f"/proc/{process}/cmdline")
    try:
        return bool(line.read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_pod_runs_and_its_log_can_be_read(cluster: RealCluster) -> None:
    written = cluster.shared / "written"
    code = f"import os; open({str(written)!r}, 'w').write('by a pod'); print('on', os.uname().nodename)"
    created(cluster, "first", container("python", "-c", code))
    pod = reaches(cluster, "first", has_ended)
    assert pod["status"]["phase"] == "Succeeded", log(cluster, "first")
    assert log(cluster, "first") == "on first\n"
    assert written.read_text() == "by a pod"


def test_pod_reaches_a_service_by_name_with_its_own_token(cluster: RealCluster) -> None:
    created(cluster, "asker", container("python", "-c", ASK_THE_API_SERVER))
    reaches(cluster, "asker", has_ended)
    assert log(cluster, "asker") == "system:serviceaccount:default:default\n"


def test_host_file_system_is_read_only_for_pods(cluster: RealCluster) -> None:
    created(cluster, "writer", container("touch", str(Path(__file__).with_name("touched"))))
    pod = reaches(cluster, "writer", has_ended)
    assert pod["status"]["phase"] == "Failed"
    assert "Read-only file system" in log(cluster, "writer")


@pytest.mark.parametrize(
    "command", [("python", "-c", ALL_REDUCE), ("torchrun", "--no-python", "python", "-c", ALL_REDUCE)]
)
def test_job_trains_across_two_nodes(cluster: RealCluster, command: Sequence[str]) -> None:
    name = f"reduce-{command[0]}"
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": name}},
    }
    replica = {
        "replicas": 1,
        "restartPolicy": "Never",
        "template": {"spec": {"topologySpreadConstraints": [apart], "containers": [container(*command)]}},
    }
    rendezvous = {"minReplicas": 2, "maxReplicas": 2, "rdzvBackend": "c10d"}
    specification: Mapping[str, Any] = (
        {
            "elasticPolicy": rendezvous,
            "nprocPerNode": "1",
            "pytorchReplicaSpecs": {"Worker": {**replica, "replicas": 2}},
        }
        if command[0] == "torchrun"
        else {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}
    )
    cluster.plane.namespace(SPACE)
    metadata = {"name": name, "namespace": SPACE}
    cluster.admin.create(
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": specification}
    )
    selected = {"labelSelector": f"training.kubeflow.org/job-name={name}"}

    def conditions() -> Mapping[str, str]:
        found = (cluster.admin.get(jobs(SPACE, name)) or {}).get("status", {}).get("conditions") or []
        return {each["type"]: each["status"] for each in found}

    def describe_pods() -> str:
        return str(
            [
                (each["status"], log(cluster, each["metadata"]["name"]))
                for each in cluster.admin.items(pods(SPACE), **selected)
            ]
        )

    wait_until(lambda: {"Succeeded", "Failed"} & {*conditions()} != set(), PATIENCE, describe_pods)
    assert conditions().get("Succeeded") == "True", describe_pods()
    found = cluster.admin.items(pods(SPACE), **selected)
    assert {each["spec"]["nodeName"] for each in found} == {"node-1", "node-2"}
    said = [line for each in found for line in log(cluster, each["metadata"]["name"]).splitlines()]
    assert {"rank 0 of 2: 3", "rank 1 of 2: 3"} <= {*said}


def test_stock_flyte_plugin_runs_a_flytekit_task_in_pods(cluster: RealCluster) -> None:
    folder = cluster.shared / "flyte"
    folder.mkdir()
    with RealPropeller(cluster.plane, folder, PropellerOptions()) as propeller:
        execution = propeller.start(workflows.succeeds, value=3)
        found = propeller.wait(execution, 240)
        assert found["status"]["phase"] == 3, [
            (each["status"], log(cluster, each["metadata"]["name"], NAMESPACE))
            for each in cluster.admin.items(pods(NAMESPACE))
        ]
        assert propeller.outputs(execution) == {"o0": "rank 0 of 2: 3"}


def test_container_above_its_memory_limit_is_oomkilled(cluster: RealCluster) -> None:
    limits = {"limits": {"memory": "64Mi"}}
    greedy = container("python", "-c", "bytearray(1 << 30)", resources=limits)
    # Two pods, because the OOM event can arrive after the reason has been written.
    names = ("greedy-0", "greedy-1")
    for name in names:
        created(cluster, name, greedy)
    ended = [state(reaches(cluster, name, has_ended))["terminated"] for name in names]
    assert [each["exitCode"] for each in ended] == [137, 137]
    assert "OOMKilled" in {each["reason"] for each in ended}


def test_pod_with_an_unknown_image_stays_pending(cluster: RealCluster) -> None:
    created(cluster, "imageless", container("true", image="rn.local/absent:1"))

    def reason(pod: Manifest) -> str:
        return str(state(pod).get("waiting", {}).get("reason"))

    reaches(cluster, "imageless", lambda pod: reason(pod) == "ErrImagePull")
    pod = reaches(cluster, "imageless", lambda pod: reason(pod) == "ImagePullBackOff")
    assert pod["status"]["phase"] == "Pending"
    assert "rn.local/absent:1" in state(pod)["waiting"]["message"]


def test_resources_of_a_killed_test_process_are_cleaned_up(cluster: RealCluster, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    # The fixture only checks that this machine can run nodes.
    del cluster
    started = Process(
        [sys.executable, "-c", LEFT_ALONE, str(tmp_path)], tmp_path / "log", directory=Path(__file__).parent
    )
    with started:
        told = tmp_path / "number"
        started.wait_until(lambda: told.exists() and bool(told.read_text()))
        number, *processes = map(int, told.read_text().split())
        started.kill()
    wait_until(lambda: not any(map(runs, processes)), 30, lambda: f"some live: {processes}")
    link = Path("/sys/class/net", leftovers.name(number))
    cgroups = f"*/{leftovers.name(number)}"
    assert [*leftovers.CGROUPS.glob(cgroups)]
    with leftovers.number():
        assert not link.exists()
        assert not [*leftovers.CGROUPS.glob(cgroups)]
    mounted = subprocess.run(["mount"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in mounted


def test_unsupported_real_nodes_are_reported_as_not_run() -> None:
    asked = [
        sys.executable,
        "-m",
        "pytest",
        f"{__file__}::test_pod_runs_and_its_log_can_be_read",
        "-qmcluster",
    ]
    ended = subprocess.run(
        ["setpriv", "--bounding-set=-sys_admin", *asked], capture_output=True, text=True, check=False
    )
    assert ended.returncode == NOT_RUN, ended.stdout
    assert "NOT RUN: real nodes need namespaces, and root may make none here" in ended.stdout
