"""Our server with the real Trainer and JobSet, which it finds by itself; pods and volumes are simulated.

`test_trainjob_nodes` loads real data, and fails to load absent data.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rig import trainer
from rig.api import pods
from rig.backend import Backend
from rig.caller import Caller, Shape
from rig.fake_nodes import BY_HAND, RUN
from rig.process import wait_for
from rig.scheduling import COSCHEDULING
from rig.stores import add_volume
from rig.trainer import PlayedJob

from backend_plugin import client

PLANE = "with_trainer"
NAMESPACE = "trainjobs"
NODES = ("node-0", "node-1")
ENDS = ("SUCCEEDED", "FAILED", "RETRYABLE_FAILED")
PATHS = [path.format(NAMESPACE) for path in (trainer.TRAINJOBS, trainer.RUNTIMES)]
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
MOST_DISRUPTIONS = 2
SETTINGS = {"kfpytorch": {"max-disruptions": MOST_DISRUPTIONS}}
ELASTIC = {
    "masterReplicas": {},
    "workerReplicas": {"replicas": 6},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 6, "nprocPerNode": 1},
}


def start(plane, caller, shape):
    """Create a job whose pods a test controls."""
    attempt = caller.create(shape=replace(shape, annotations={BY_HAND: "yes"}))
    return attempt, PlayedJob(plane.admin, NAMESPACE, attempt.job)


def test_job_succeeds_and_its_objects_are_deleted(plane, caller, served):
    attempt = caller.create(shape=Shape(workers=2, annotations={RUN: "15s"}))
    caller.wait_for(attempt, "RUNNING", part="3 of 3 replicas ready")
    job, runtime = (f"{path}/{attempt.job}" for path in PATHS)
    uid = plane.admin.get(job)["metadata"]["uid"]

    wait_for(
        lambda: plane.admin.get(runtime)["metadata"].get("ownerReferences", []),
        lambda owners: [each["uid"] for each in owners] == [uid],
    )
    nodes = trainer.list_pods(plane.admin, NAMESPACE, attempt.job)
    assert sorted(nodes) == ["node-0", "node-1", "node-2"]
    for pod in nodes.values():
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert env["MASTER_ADDR"] == f"{attempt.job}-node-0-0.{attempt.job}"
        assert (env["WORLD_SIZE"], env["PET_NNODES"], env["RANK"]) == ("3", "3", None)
    caller.succeeded(attempt)
    limit = timedelta(seconds=60)
    ended = client.wait_for_job(attempt.job, timeout=limit, namespace=NAMESPACE, server=str(served.state))
    assert ended.verdict.phase == "SUCCEEDED"
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    caller.delete(attempt)
    for path in (job, runtime, *(pods(NAMESPACE, each["metadata"]["name"]) for each in nodes.values())):
        plane.admin.wait_until_gone(path)


def test_disruptions_up_to_the_limit_cost_no_attempt(plane, caller):
    attempt, job = start(plane, caller, Shape(workers=1))
    for _ in range(MOST_DISRUPTIONS):
        job.run(*NODES)
        caller.wait_for(attempt, "RUNNING")
        uids = job.uids
        job.end("node-1", 143, conditions=[DISRUPTED])
        wait_for(lambda uids=uids: job.list_replaced(uids), lambda found: found == {*NODES})
        assert caller.get(attempt).phase == "RUNNING"
    job.run(*NODES)
    job.end("node-0", 143, conditions=[DISRUPTED])
    assert caller.wait_for(attempt, *ENDS).phase == "RETRYABLE_FAILED"
    wait_for(lambda: job.pods, lambda found: not found)


def test_pod_failure_rule_fails_the_task_before_the_restart_limit(plane, caller):
    rules = [{"action": "FailJob", "exitCodes": [42]}, {"action": "Ignore", "exitCodes": [43]}]
    shape = Shape(workers=1, custom=trainer.build_options(maxRestarts=3, podFailurePolicy=rules))
    attempt, job = start(plane, caller, shape)
    for code, lost in ((1, {"node-0", "node-1"}), (43, {"node-1"})):
        job.run(*NODES)
        caller.wait_for(attempt, "RUNNING")
        uids = job.uids
        job.end("node-1", code)
        wait_for(lambda uids=uids: job.list_replaced(uids), lambda found, lost=lost: found == lost)
        assert caller.get(attempt).phase == "RUNNING"
    job.run(*NODES)
    job.end("node-1", 42)
    response = caller.wait_for(attempt, *ENDS)
    assert (response.phase, response.message.partition("\n")[0]) == (
        "FAILED",
        "node-1 failed: exit code 42 (user-error)",
    )


def test_success_policy_ends_the_job_after_the_first_node(plane, caller):
    shape = Shape(workers=1, custom=trainer.build_options(successPolicy={"succeededIndexes": "0"}))
    attempt, job = start(plane, caller, shape)
    job.run(*NODES)
    caller.succeeded(attempt)
    job.end("node-0")
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    wait_for(lambda: job.pods, lambda found: set(found) <= {"node-0"})


def test_elastic_job_succeeds_without_unscheduled_nodes(plane, caller):
    attempt, job = start(plane, caller, Shape(custom=ELASTIC, gpus=4))
    placed = wait_for(lambda: job.placed, lambda found: len(found) == 4)
    job.run(*placed)
    caller.wait_for(attempt, "RUNNING")
    caller.succeeded(attempt)
    for name in placed:
        job.end(name)
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    wait_for(lambda: job.pods, lambda found: len(found) == 4)


# ---- a data set and a model


GANG = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
FOLDER = Path("/data")  # The folder of all volumes, which no simulated pod mounts.
LOADERS = ("dataset-initializer-0", "model-initializer-0")


def start_with_volume(plane, caller, **options):
    attempt = caller.attempt()
    add_volume(plane.admin, attempt.execution, FOLDER)
    custom = trainer.build_options(**options)
    caller.create(attempt, Shape(workers=1, annotations={BY_HAND: "yes"}, custom=custom))
    return attempt, PlayedJob(plane.admin, NAMESPACE, attempt.job)


def list_variables(pod):
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def list_mounts(pod):
    """Return path and subpath of each mount of the volume of the initializers."""
    (container,) = pod["spec"]["containers"]
    return [
        (each["mountPath"], each.get("subPath", ""))
        for each in container["volumeMounts"]
        if each["name"] == "initializer"
    ]


def test_nodes_start_as_a_gang_after_the_data_is_loaded(plane, served, tmp_path):
    """The volume belongs to the job, and is deleted with it."""
    settings = {"kfpytorch": {"dialect": "trainjob", "gang": GANG}}
    with (
        Backend(plane, tmp_path, settings=settings) as ganging,
        Caller(ganging.endpoint, tmp_path, NAMESPACE, again=False) as caller,
    ):
        dataset = {"uri": "s3://data/digits", "env": {"REGION": "eu"}}
        attempt, job = start_with_volume(
            plane, caller, dataset=dataset, model={"uri": "hf://owner/model"}, storage={"size": "1Gi"}
        )
        job.wait_for(*LOADERS)
        loading = job.pods
        variables = list_variables(loading["dataset-initializer-0"])
        assert (variables["STORAGE_URI"], variables["REGION"]) == ("s3://data/digits", "eu")
        assert list_mounts(loading["model-initializer-0"]) == [("/workspace", "")]
        assert plane.admin.get_existing(f"{GROUPS}/{attempt.job}")["spec"]["minMember"] == len(NODES)
        job.run(*LOADERS)
        caller.wait_for(attempt, "INITIALIZING", part="the dataset is being loaded")
        shown = client.get_job(attempt.job, namespace=NAMESPACE, server=str(ganging.state))
        assert [each.role for each in shown.replicas] == ["dataset-initializer", "model-initializer"]
        job.end("dataset-initializer-0")
        caller.wait_for(attempt, "INITIALIZING", part="the model is being loaded")
        assert "node-0" not in job.pods
        job.end("model-initializer-0")
        job.wait_for(*NODES)
        found = job.pods
        assert list_mounts(found["node-1"]) == [
            ("/workspace/dataset", "dataset"),
            ("/workspace/model", "model"),
        ]
        assert {name: pod["spec"]["schedulerName"] for name, pod in found.items()} == {
            **dict.fromkeys(LOADERS, "default-scheduler"),
            **dict.fromkeys(NODES, COSCHEDULING),
        }
        job.run(*NODES)
        caller.wait_for(attempt, "RUNNING", part="2 of 2 replicas ready")
        delete_with_its_volume(plane, caller, attempt, job)


def delete_with_its_volume(plane, caller, attempt, job):
    claim = f"{CLAIMS}/initializer-{attempt.job}"
    owners = plane.admin.get_existing(claim)["metadata"]["ownerReferences"]
    jobset = plane.admin.get_existing(f"{JOBSETS}/{attempt.job}")["metadata"]
    assert [each["uid"] for each in owners] == [jobset["uid"]]
    caller.delete(attempt)
    wait_for(lambda: job.pods, lambda found: not found)
    plane.admin.wait_until_gone(claim)


def add_runtime(plane):
    runtime = trainer.build_runtime("loading", "other:1")
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    name = "dataset-initializer"
    mount = {"name": "initializer", "mountPath": "/workspace"}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": name, "image": "image:1", "volumeMounts": [mount]}],
        "volumes": [{"name": "initializer", "emptyDir": {}}],
    }
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": name}},
        "spec": {"template": {"metadata": {"annotations": {BY_HAND: "yes"}}, "spec": pod}},
    }
    jobs[0]["dependsOn"] = [{"name": name, "status": "Complete"}]
    jobs.insert(0, {"name": name, "template": template})
    plane.admin.apply(runtime)


def test_named_runtime_is_patched_and_loads_the_data_before_its_nodes(plane, caller):
    add_runtime(plane)
    attempt, job = start_with_volume(plane, caller, runtime="loading", dataset={"uri": "s3://data/digits"})
    loader = LOADERS[0]
    job.run(loader)
    assert list_variables(job.pods[loader])["STORAGE_URI"] == "s3://data/digits"
    caller.wait_for(attempt, "INITIALIZING", part="the dataset is being loaded")
    assert job.pods.keys() == {loader}
    job.end(loader)
    job.run(*NODES)
    for name in NODES:
        pod = job.pods[name]
        variables = list_variables(pod)
        assert pod["spec"]["containers"][0]["image"] == "image:1"
        assert (variables["WORLD_SIZE"], variables["PET_NNODES"]) == ("2", "2")
    assert plane.admin.get(f"{trainer.RUNTIMES.format(NAMESPACE)}/{attempt.job}") is None
    caller.wait_for(attempt, "RUNNING")
    for name in NODES:
        job.end(name)
    caller.succeeded(attempt)
    caller.wait_for(attempt, "SUCCEEDED")
