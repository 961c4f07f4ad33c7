"""A burn-in job is created, reported and deleted, however it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from builders import a_run, a_template
from kube_server import Fault, kubeconfig
from kube_world import JOBS, PODS, ended_pod
from msgspec import structs
from server_process import KFPYTORCH

from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import Settings, read
from backend_plugin.doctor.burn_in import job, observer, runner
from backend_plugin.doctor.check import Severity
from backend_plugin.doctor.facts import Facts, NotReadable, PlannedTask
from backend_plugin.kube.api_resources import EVENTS
from backend_plugin.kube.options import KubernetesOptions

ROLES = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}}
TEMPLATE = a_template(ROLES, id={"resourceType": "TASK", "name": "train"})
RUN = job.build_attempt(a_run(namespace="ns"), "0123")
PLANNED = plan(TEMPLATE, RUN, Settings())
NAME = PLANNED.job["metadata"]["name"]
MASTER = f"{NAME}-master-0"
SIZE = {"mebibytes": 8, "seconds": 0.01, "algbw": 2.5, "busbw": 2.5}
MEASURED = {"ranks": 2, "hosts": 2, "backend": "gloo", "device": "cpu", "torch": "2", "sizes": [SIZE]}
GROUP = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": NAME}}
LINE = json.dumps({"kfpytorch-burn-in": MEASURED})
FORBIDDEN = {"kind": "Status", "code": 403, "message": 'User "us" cannot delete resource "pytorchjobs"'}


def replica(role, node, exit_code=0):
    about = {"job-name": NAME, "replica-type": role, "replica-index": "0"}
    labels = {f"training.kubeflow.org/{key}": value for key, value in about.items()}
    return ended_pod(f"{NAME}-{role}-0", labels, node, exit_code=exit_code)


def jobs(server):
    return server.list_objects("pytorchjobs")


def burned_in(server, tmp_path, play=lambda: None, seconds=60, **facts):
    """Run a burn-in, and call `play` when its job exists; return the findings and messages."""
    server.objects.on_create = lambda *_: threading.Thread(target=play).start()
    messages = []
    options = KubernetesOptions(kubeconfig=kubeconfig(server, tmp_path / "config"), request_timeout=10.0)
    known = Facts(namespace="ns", **{"task": PlannedTask(plan=PLANNED), **facts})
    limits = runner.BurnInLimits(seconds=seconds, say=messages.append, pause=0.05)
    return asyncio.run(runner.run_burn_in(options, known, limits)), messages


def test_burn_in_measurements_are_reported_without_events_and_the_job_is_deleted(server, tmp_path):
    server.logs[MASTER] = [["NCCL INFO something", LINE, "goodbye"]]
    server.faults.append(Fault(path="/events", code=403, times=1_000, status=FORBIDDEN))
    for role, node in (("worker", "node-2"), ("master", "node-1")):
        server.apply(PODS, replica(role, node))
    (found,), messages = burned_in(server, tmp_path)
    assert (found.id, found.level) == ("burn-in", Severity.NOTE)
    assert "2 ranks in 2 pods on 2 nodes all-reduced with gloo on cpu" in found.sentence
    assert jobs(server) == []
    made = next(each for each in server.bodies if each.get("kind") == "PyTorchJob")
    assert "backoffLimit" not in made["spec"]["runPolicy"]
    assert messages[0].startswith(f"creating PyTorchJob ns/{NAME}")
    assert messages[-1] == f"deleted PyTorchJob ns/{NAME}"


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept pod", "deleted pod"])
def test_failed_burn_in_is_reported_with_the_last_log_lines(server, tmp_path, is_kept):
    server.logs[MASTER] = [["Traceback", "ModuleNotFoundError: No module named 'torch'"]]

    def play():
        server.apply(PODS, replica("master", "node-1", exit_code=1))
        if not is_kept:
            while not any(f"{MASTER}/log" in each for each in server.requests):
                time.sleep(0.01)
            server.remove(PODS, MASTER)
        failed = {"type": "Failed", "status": "True", "message": "PyTorchJob has failed"}
        server.apply(JOBS, {**server.get_object(JOBS, NAME), "status": {"conditions": [failed]}})

    (found,), _ = burned_in(server, tmp_path, play)
    assert found.level is Severity.ERROR
    assert "No module named 'torch'" in found.sentence
    assert jobs(server) == []


def test_burn_in_after_the_timeout_is_deleted_and_its_last_state_is_reported(server, tmp_path):
    (found,), messages = burned_in(server, tmp_path, seconds=3)
    assert found.level is Severity.ERROR
    assert messages[1] in found.sentence
    assert "--burn-in-timeout" in found.remedy
    assert jobs(server) == []


TRAINER = "trainer.kubeflow.org"
TRAIN_JOB = plan(TEMPLATE, RUN, read({"kfpytorch": {"dialect": "trainjob"}}))
TRAIN_JOB_NAME = TRAIN_JOB.job["metadata"]["name"]
ON_TRAINER = PlannedTask(dialect=DIALECTS["TrainJob"], plan=TRAIN_JOB)
WITH_GROUP = PlannedTask(plan=structs.replace(PLANNED, companions=(GROUP,)))


@pytest.mark.parametrize(
    ("task", "group", "forbidden"),
    [
        *((WITH_GROUP, "kubeflow.org", f"{verb} pytorchjobs") for verb in ("create", "delete", "get")),
        *((WITH_GROUP, '""', each) for each in ("get pods/log", "list events", "list pods")),
        (WITH_GROUP, "scheduling.x-k8s.io", "create podgroups"),
        *((ON_TRAINER, TRAINER, f"{verb} trainingruntimes") for verb in ("create", "delete")),
    ],
)
def test_missing_permission_prevents_the_burn_in_and_is_reported(server, tmp_path, task, group, forbidden):
    server.groups[TRAINER] = {"trainjobs": "v1alpha1", "trainingruntimes": "v1alpha1"}
    server.forbidden.add(forbidden)
    (found,), messages = burned_in(server, tmp_path, task=task)
    assert (found.id, found.level) == ("burn-in", Severity.UNKNOWN)
    assert found.sentence == f"no burn-in was run: the account of this command lacks permissions: {forbidden}"
    verb, resource = forbidden.split()
    assert f"{{apiGroups: [{group}], resources: [{resource}], verbs: [{verb}]}}" in found.remedy
    assert (messages, server.bodies) == ([], [])


def test_rejection_of_the_burn_in_job_is_reported(server, tmp_path):
    server.do(lambda objects: setattr(objects, "quota", "exceeded quota: few"))
    (found,), _ = burned_in(server, tmp_path)
    assert found.level is Severity.ERROR
    assert "exceeded quota: few" in found.sentence


def test_failed_deletion_of_the_burn_in_job_is_reported(server, tmp_path):
    server.logs[MASTER] = [[LINE]]
    server.apply(PODS, replica("master", "node-1"))
    server.faults.append(Fault("DELETE", "pytorchjobs", code=403, times=100, status=FORBIDDEN))
    (found, left), _ = burned_in(server, tmp_path)
    assert (found.level, left.level) == (Severity.NOTE, Severity.WARNING)
    assert left.remedy == f"kubectl delete pytorchjob -n ns {NAME}"


def command(server, tmp_path, *flags):
    task = tmp_path / "task.pb"
    task.write_bytes(TEMPLATE.SerializeToString())
    options = ["--kubeconfig", kubeconfig(server, tmp_path / "config"), "--namespace", "ns"]
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    # A test run in the background ignores SIGINT, and the command would inherit that.
    heeds = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    asked = [sys.executable, "-c", heeds, KFPYTORCH, "doctor", *options, str(task), "train", *flags]
    return subprocess.Popen(asked, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_interrupted_burn_in_deletes_its_job(server, tmp_path, sent, code):
    with command(server, tmp_path, "--burn-in") as process:
        while not jobs(server) and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert jobs(server) == []


def test_doctor_without_the_burn_in_option_creates_no_job(server, tmp_path):
    with command(server, tmp_path, "-o", "json") as process:
        out, _ = process.communicate(timeout=60)
    assert "burn-in" not in {each["id"] for each in json.loads(out)["findings"]}
    assert not any(each.startswith("DELETE") for each in server.requests)
    assert jobs(server) == []


def node(index):
    about = {"jobset-name": TRAIN_JOB_NAME, "replicatedjob-name": "node", "restart-attempt": "0"}
    labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in about.items()}
    labels["batch.kubernetes.io/job-completion-index"] = str(index)
    return ended_pod(f"{TRAIN_JOB_NAME}-node-0-{index}-aaaaa", labels, f"node-{index}", "node")


def test_runtime_of_a_train_job_is_created_before_it_and_deleted_after_it(server, tmp_path):
    server.groups[TRAINER] = {"trainjobs": "v1alpha1", "trainingruntimes": "v1alpha1"}
    server.logs[node(0)["metadata"]["name"]] = [[LINE]]
    for index in (0, 1):
        server.apply(PODS, node(index))
    (found,), messages = burned_in(server, tmp_path, task=ON_TRAINER)
    assert (found.id, found.level) == ("burn-in", Severity.NOTE)
    assert "2 pods on 2 nodes" in found.sentence
    assert messages[-1] == f"deleted TrainJob ns/{TRAIN_JOB_NAME}"
    path = f"/apis/{TRAINER}/v1alpha1/namespaces/ns/"
    changes = [each for each in server.requests if TRAINER in each and not each.startswith("GET")]
    assert [each.replace(path, "") for each in changes] == [
        *("POST trainingruntimes", "POST trainjobs"),
        *(f"DELETE {plural}/{TRAIN_JOB_NAME}" for plural in ("trainjobs", "trainingruntimes")),
    ]


def test_task_of_another_framework_has_no_burn_in(server, tmp_path):
    (found,), _ = burned_in(server, tmp_path, task=PlannedTask(plan=PLANNED, framework="mpi"))
    assert (found.level, jobs(server)) == (Severity.UNKNOWN, [])
    assert "the framework of the task is mpi" in found.sentence


async def test_failed_list_of_events_of_one_kind_does_not_hide_the_others():
    class Reader:
        async def read_objects(self, query):
            if query.query == {"fieldSelector": "involvedObject.kind=PyTorchJob"}:
                raise NotReadable("500")
            return [{"involvedObject": {"name": MASTER}}] if query.resource is EVENTS else []

    watched = observer.BurnInObserver(api=None, reader=Reader(), namespace="ns", dialect=DEFAULT)
    assert await watched._fetch_events(NAME) == [{"involvedObject": {"name": MASTER}}] * 2
