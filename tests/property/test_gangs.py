"""Property tests: gangs of all sizes, for all schedulers."""

from builders import a_run, a_template, decoded
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import settings
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import JobDraft
from backend_plugin.core.scheduling import registry
from backend_plugin.core.scheduling.gang import build_gang_roles, compute_min_counts
from backend_plugin.core.scheduling.pod_requests import add_amounts, format_amounts, scale_amounts

WORKERS = st.integers(1, 9)
REPLICAS = WORKERS.map(
    lambda workers: {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": workers}}
)
ELASTIC = st.tuples(WORKERS, WORKERS).map(
    lambda ends: {
        "workerReplicas": {"replicas": max(ends)},
        "elasticConfig": {"minReplicas": min(ends), "maxReplicas": max(ends), "nprocPerNode": 1},
    }
)
CUSTOMS = REPLICAS | ELASTIC
HOW = st.sampled_from(
    [(name, creator) for name, adapters in registry.ADAPTERS.items() for creator in adapters]
)
MARKS = {"schedulerName", "priorityClassName"}


def gang_of(custom, minimum: int | None):
    there = sum(part["replicas"] for key, part in custom.items() if key.endswith("Replicas"))
    fewest = custom.get("elasticConfig", {}).get("minReplicas", 1)
    options = {} if minimum is None else {"minMember": max(fewest, min(minimum, there))}
    return {**custom, "kfpytorch": {"gang": options}}


@given(CUSTOMS, st.none() | WORKERS)
def test_min_counts_sum_to_min_member_and_include_the_master(custom, minimum):
    job = decoded(gang_of(custom, minimum))
    counts = compute_min_counts(job)
    there = {group.role: group.replicas for group in job.groups}
    fewest = job.elastic.min_replicas if job.elastic else sum(there.values())
    assert job.gang is not None
    assert sum(counts.values()) == (job.gang.min_member or fewest)
    assert all(counts[role] <= there[role] for role in there)
    assert counts.get(ReplicaRole.MASTER, 1) == 1


@given(CUSTOMS, st.none() | WORKERS, HOW)
def test_gang_changes_only_the_fields_of_its_scheduler(custom, minimum, how):
    scheduler, creator = how
    queue = {} if scheduler == "coscheduling" else {"queue": "q"}
    ganging = {"scheduler": scheduler, **({"pod-groups-by": creator} if creator else {}), **queue}
    template = a_template(gang_of(custom, None if scheduler == "kueue" else minimum))
    (plain,) = plan(template, a_run(), settings.read({})).manifests
    job, *beside = plan(template, a_run(), settings.read({"kfpytorch": {"gang": ganging}})).manifests
    assert [each["metadata"]["name"] for each in beside] in ([], [plain["metadata"]["name"]])
    assert without_marks(job) == without_marks(plain)


def without_marks(job):
    def select_fields(template):
        return {key: value for key, value in template["spec"].items() if key not in MARKS}

    roles = job["spec"]["pytorchReplicaSpecs"].items()
    spec = {
        key: value for key, value in job["spec"].items() if key not in ("runPolicy", "pytorchReplicaSpecs")
    }
    replicas = {role: {**replica, "template": select_fields(replica["template"])} for role, replica in roles}
    return job["metadata"]["name"], spec, replicas


@given(CUSTOMS, st.none() | WORKERS)
def test_gang_request_is_the_sum_of_its_member_requests(custom, minimum):
    fields = gang_of(custom, minimum)
    section = {"kfpytorch": {"gang": {"scheduler": "coscheduling", "pod-groups-by": "operator"}}}
    (job,) = plan(a_template(fields), a_run(), settings.read(section)).manifests
    policy = job["spec"]["runPolicy"].get("schedulingPolicy")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    pods = {role: replicas[role.value]["template"] for role in ReplicaRole if role.value in replicas}
    there = build_gang_roles(decoded(fields), JobDraft(metadata=job["metadata"], pods=pods))
    if policy is not None:
        parts = [scale_amounts(each.min_count, each.request) for each in there]
        assert policy == {
            "minAvailable": sum(each.min_count for each in there),
            "minResources": format_amounts(add_amounts(parts)),
        }
