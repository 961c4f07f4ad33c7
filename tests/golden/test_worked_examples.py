"""Worked examples: one gang for each scheduler, with the fields that the scheduler reads written by hand.

The gang has a master with 2 CPUs and 4Gi, and four workers with 4 CPUs, 16Gi and a GPU, in the queue ml-team.
The elastic gang has two to four of these workers. The golden plans contain the whole objects. There is no
TrainJob example, because no job is written as a TrainJob.
"""

import json
from pathlib import Path

import pytest

from backend_plugin.cli import render_requests
from backend_plugin.core.errors import InvalidSettings

HERE = Path(__file__).parent
WHOLE = {"cpu": "18", "memory": "68Gi", "nvidia.com/gpu": "4"}
LEAST = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}
OF_MASTER = {"cpu": "2", "memory": "4Gi"}
OF_WORKER = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
PLACES = {
    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
NAME = "f7c2a91b-n0-0-b52a1fe4a236"
ROLES = ("Master", "Worker")
OURS = ("kfpytorch.flyte.org/", "cluster-autoscaler.kubernetes.io/", "app.kubernetes.io/", "execution-id")


def planned(name: str):
    request = json.loads((HERE / f"gang_{name}" / "request.json").read_text())
    return list(json.loads(json.dumps(render_requests.render_manifests(request)["manifests"], default=dict)))


def theirs(mapping):
    return {key: value for key, value in (mapping or {}).items() if not key.startswith(OURS)}


def read_of_pods(job):
    """Return the fields that a scheduler reads from the pods, for each role."""
    found = {}
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        metadata, spec = replica["template"]["metadata"], replica["template"]["spec"]
        parts = {
            **theirs(metadata.get("labels")),
            **theirs(metadata.get("annotations")),
            "schedulerName": spec.get("schedulerName"),
            "priorityClassName": spec.get("priorityClassName"),
        }
        found[role] = {key: value for key, value in parts.items() if value is not None}
    return found


def read_of_job(job):
    """Return the fields that the operator or an admitting queue reads from the job."""
    policy = {key: value for key, value in job["spec"]["runPolicy"].items() if key != "cleanPodPolicy"}
    return {**theirs(job["metadata"]["labels"]), **policy}


HIGH = {"priorityClassName": "train-high"}
PERMIT = {"scheduleTimeoutSeconds": 120}
GROUP = {"minMember": 5, "minResources": WHOLE}
SMALL = {"minMember": 2, "minResources": LEAST}
HIGH_VOLCANO = {"queue": "ml-team", "priorityClass": "train-high"}
OF_COSCHEDULING = {
    "scheduling.x-k8s.io/pod-group": NAME,
    "schedulerName": "scheduler-plugins-scheduler",
    **HIGH,
}
OF_VOLCANO = {
    "scheduling.k8s.io/group-name": NAME,
    "volcano.sh/task-spec": "{role}",
    "schedulerName": "volcano",
    **HIGH,
}
OF_KUEUE = {
    "kueue.x-k8s.io/queue-name": "ml-team",
    "kueue.x-k8s.io/priority-class": "train-high",
    "suspend": True,
}
OF_KAI = {"kai.scheduler/queue": "ml-team", "priorityClassName": "train"}
KAI_POD = {"schedulerName": "kai-scheduler"}
COSCHEDULING_API, VOLCANO_API = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"


def policy(minimum: int, resources=None, **more):
    amounts = {"minResources": resources} if resources else {}
    return {"schedulingPolicy": {"minAvailable": minimum, **amounts, **more}}


def volcano_group(group, **members: int):
    return VOLCANO_API, {**group, "minTaskMember": members, "queue": "ml-team", **HIGH}


# For each folder: the fields of the job, those of the pods of both roles, and the pod group that we create.
EXAMPLES = {
    "coscheduling_operator": (policy(5, WHOLE, **PERMIT), HIGH, None),
    "coscheduling_operator_elastic": (policy(2, LEAST, **PERMIT), HIGH, None),
    "coscheduling_backend": ({}, OF_COSCHEDULING, (COSCHEDULING_API, {**GROUP, **PERMIT})),
    "coscheduling_backend_elastic": ({}, OF_COSCHEDULING, (COSCHEDULING_API, {**SMALL, **PERMIT})),
    "volcano_operator": (policy(5, WHOLE, **HIGH_VOLCANO), HIGH, None),
    "volcano_operator_elastic": (policy(2, LEAST, **HIGH_VOLCANO), HIGH, None),
    "volcano_backend": ({}, OF_VOLCANO, volcano_group(GROUP, master=1, worker=4)),
    "volcano_backend_elastic": ({}, OF_VOLCANO, volcano_group(SMALL, worker=2)),
    # Kueue's priority is a WorkloadPriorityClass. It has no minimum, so all four workers count.
    "kueue": (OF_KUEUE, {}, None),
    "kueue_elastic": (OF_KUEUE, {}, None),
    # KAI creates its own pod group for the job: five pods with a master, or two.
    "kai": ({**OF_KAI, **policy(5)}, KAI_POD, None),
    "kai_elastic": ({**OF_KAI, **policy(2)}, KAI_POD, None),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_gang_fields_equal_the_worked_example(name):
    of_job, of_pods, group = EXAMPLES[name]
    job, *beside = planned(name)
    roles = ("Worker",) if name.endswith("_elastic") else ROLES
    assert read_of_job(job) == of_job
    assert read_of_pods(job) == {
        role: {key: str(value).replace("{role}", role.lower()) for key, value in of_pods.items()}
        for role in roles
    }
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
    assert [(each["apiVersion"], each["spec"]) for each in beside] == ([group] if group else [])
    for each in beside:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("PyTorchJob", NAME, True)
        assert each["metadata"]["name"] == job["metadata"]["name"] == NAME


@pytest.mark.parametrize(
    ("name", "members"), [("yunikorn", {"master": 1, "worker": 4}), ("yunikorn_elastic", {"worker": 2})]
)
def test_yunikorn_task_groups_match_the_pods_of_each_role(name, members):
    (job,) = planned(name)
    assert read_of_job(job) == {}
    prefix = "yunikorn.apache.org/"
    pods = read_of_pods(job)
    assert {role.lower() for role in pods} == set(members)
    groups = {parts.pop(f"{prefix}task-groups") for parts in pods.values()}
    # Equal on every pod, because YuniKorn uses the first one that it receives.
    (written,) = groups
    found = {each.pop("name"): each for each in json.loads(written)}
    requests_of = {"master": OF_MASTER, "worker": OF_WORKER}
    for role, count in members.items():
        labels = found[role].pop("labels")
        assert all(key.startswith("kfpytorch.flyte.org/") for key in labels), "for us to see them by"
        places = PLACES if role == "worker" else {}
        assert found.pop(role) == {"minMember": count, "minResource": requests_of[role], **places}
    assert found == {}
    for role, parts in pods.items():
        assert parts == {
            f"{prefix}app-id": NAME,
            f"{prefix}queue": "root.ml-team",
            f"{prefix}task-group-name": role.lower(),
            f"{prefix}schedulingPolicyParameters": "placeholderTimeoutInSeconds=600 gangSchedulingStyle=Hard",
            "schedulerName": "yunikorn",
            **HIGH,
        }


def test_in_tree_scheduler_is_rejected_for_pytorchjobs():
    request = json.loads((HERE / "gang_kai" / "request.json").read_text())
    with pytest.raises(
        InvalidSettings, match=r"in-tree.*does not support PyTorchJobs: since Kubernetes 1.36"
    ):
        render_requests.render_manifests(
            {**request, "settings": {"kfpytorch": {"gang": {"scheduler": "in-tree"}}}}
        )


@pytest.mark.parametrize("scheduler", ["coscheduling", "yunikorn"])
def test_pod_templates_of_the_published_guides_become_gangs(scheduler):
    """Check that values of the template stay, empty ones are filled in, and other fields are kept."""
    job, *beside = planned(f"guide_template_{scheduler}")
    names = {"coscheduling": "scheduler-plugins-scheduler", "yunikorn": "yunikorn"}
    assert [each["kind"] for each in beside] == (["PodGroup"] if scheduler == "coscheduling" else [])
    for role, parts in read_of_pods(job).items():
        assert parts["schedulerName"] == names[scheduler]
        assert (parts["team"], parts["example.org/note"]) == ("vision", "kept")
        assert all(parts.values())
        if scheduler == "yunikorn":
            assert parts["yunikorn.apache.org/task-group-name"] == role.lower()
            sizes = [each["minMember"] for each in json.loads(parts["yunikorn.apache.org/task-groups"])]
            assert sizes == [1, 4]
        else:
            assert parts["scheduling.x-k8s.io/pod-group"] == NAME
            assert beside[0]["spec"]["minMember"] == 5


def test_kueue_queue_is_combined_with_coscheduling():
    job, group = planned("coscheduling_after_kueue")
    assert read_of_job(job) == {"kueue.x-k8s.io/queue-name": "ml-team", "suspend": True}
    plain, same = planned("coscheduling_backend")
    assert read_of_pods(job) == read_of_pods(plain)
    assert group == same


def test_auto_scheduler_equals_the_detected_scheduler():
    job, group = planned("auto")
    plain, same = planned("volcano_backend")
    assert (read_of_job(job), read_of_pods(job), group) == (read_of_job(plain), read_of_pods(plain), same)
