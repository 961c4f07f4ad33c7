"""Property tests: gangs of all sizes for all schedulers, and the effective requests of their pods."""

from builders import a_run, a_template, decoded
from hypothesis import example, given
from hypothesis import strategies as st

from backend_plugin.core import settings
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling import registry
from backend_plugin.core.scheduling.gang import compute_min_counts
from backend_plugin.core.scheduling.pod_requests import Amounts, compute_pod_requests
from kfpytorch_common.quantity import parse

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
# The sum of 125 MiB and 1 GB is not a whole number of KiB.
NO_SUFFIX = {"containers": [{"resources": {"limits": {"memory": "125Mi"}}}], "overhead": {"memory": "1G"}}


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


AMOUNTS = st.one_of(
    st.integers(0, 64).map(str),
    st.integers(1, 9_999).map("{}m".format),
    st.integers(1, 2_000).map("{}Mi".format),
    st.integers(1, 90).map("{}G".format),
)
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), AMOUNTS)
CONTAINERS = st.fixed_dictionaries(
    {"resources": st.fixed_dictionaries({"requests": RESOURCES, "limits": RESOURCES})}
)
INITS = st.tuples(CONTAINERS, st.booleans()).map(
    lambda made: {**made[0], **({"restartPolicy": "Always"} if made[1] else {})}
)
PODS = st.fixed_dictionaries(
    {
        "containers": st.lists(CONTAINERS, min_size=1, max_size=3),
        "initContainers": st.lists(INITS, max_size=3),
        "overhead": RESOURCES,
    }
)


def at_least(one: Amounts, other: Amounts) -> bool:
    return all(name in one and one[name] >= amount for name, amount in other.items())


@given(PODS)
@example(NO_SUFFIX)
def test_pod_request_is_formatted_as_a_canonical_quantity(pod):
    for amount in compute_pod_requests(pod).values():
        again = parse(amount.text)
        assert again == amount
        # A binary amount without a suitable suffix is a plain number, which is parsed as decimal.
        assert again.text == amount.text or amount.text.isdecimal()
        assert parse(again.text).text == again.text


@given(PODS, INITS)
def test_additional_container_never_reduces_pod_requests(pod, more):
    asked = compute_pod_requests(pod)
    assert at_least(compute_pod_requests({**pod, "containers": [*pod["containers"], more]}), asked)
    assert at_least(compute_pod_requests({**pod, "initContainers": [*pod["initContainers"], more]}), asked)
