"""Random pods: our effective resource requests match those that the real API server counts against a quota.

The pods are tested as they are, and in a namespace whose LimitRange sets defaults for containers.

`KFPYTORCH_SEED=random` selects a random seed.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from rig.api import build_manifest, path_of
from rig.process import wait_for
from rig.seed import SEED

from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.scheduling import pod_requests
from backend_plugin.core.schema_check import parse_amounts
from kfpytorch_common.quantity import parse

PODS = 300
NAMESPACE = "pod-amounts"
LIMITED = "pod-amounts-limited"
OVERHEAD = {"cpu": "250m", "memory": "120Mi"}
WHOLE = {"cpu": "500", "memory": "2Ti"}
COUNTED = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu")
LIMITS = {
    "type": "Container",
    "default": {"cpu": "50", "memory": "200Gi", "ephemeral-storage": "200Gi"},
    "defaultRequest": {"cpu": "350m", "memory": "300Mi"},
}
GIVEN = parse_amounts({"cpu": "350m", "memory": "300Mi", "ephemeral-storage": "200Gi"})
OPERATORS = {"cpu": "50m", "memory": "10Mi"}
AT_ONCE = 8


@pytest.fixture(scope="module")
def counting(bare):
    """Namespaces with a quota of zero: each rejection contains the requests of the pod."""
    fields = {"handler": "heavy", "overhead": {"podFixed": OVERHEAD}}
    path = path_of(bare.admin.apply(build_manifest("node.k8s.io/v1", "RuntimeClass", "heavy", **fields)))
    for namespace in (NAMESPACE, LIMITED):
        nothing_fits(bare, namespace)
    bare.admin.apply(build_manifest("v1", "LimitRange", "given", LIMITED, spec={"limits": [LIMITS]}))
    silent = {"containers": [{"name": "c", "image": "i"}]}
    wait_for(lambda: answer(bare, pod(silent, LIMITED)), lambda message: "requests.cpu=350m" in message)
    yield bare
    bare.admin.delete(f"{path}/heavy")


def nothing_fits(plane, namespace):
    plane.namespace(namespace)
    nothing = {f"requests.{name}": "0" for name in COUNTED}
    quota = build_manifest("v1", "ResourceQuota", "all", namespace, spec={"hard": nothing})
    status = {"status": {"hard": nothing, "used": nothing}}
    plane.admin.patch(f"{path_of(plane.admin.apply(quota))}/all/status", status)
    plain = pod({"containers": [container(Random(0), 0, COUNTED)]}, namespace)
    wait_for(lambda: answer(plane, plain), lambda message: "exceeded quota" in message)


def pod(spec, namespace=NAMESPACE):
    return build_manifest("v1", "Pod", "counted", namespace, spec=spec)


def answer(plane, manifest):
    response = plane.admin.try_create(manifest)
    return str(response.json().get("message", response.text))


def amount(dice, name):
    if name == "cpu":
        return dice.choice([str(dice.randint(1, 9)), f"{dice.randint(1, 9_000)}m", "0.5", "1.25"])
    if name == "nvidia.com/gpu":
        return str(dice.randint(1, 8))
    return dice.choice([f"{dice.randint(1, 3_000)}Mi", f"{dice.randint(1, 9)}Gi", "1G", "1500k", "123456789"])


def container(dice, number, required, **fields):
    claim = {"requests": {}, "limits": {}}
    for name in COUNTED:
        is_device = name == "nvidia.com/gpu"
        if name not in required and dice.random() < 0.6:
            continue
        one, other = sorted((amount(dice, name) for _ in range(2)), key=parse)
        how = dice.choice(["limit", "both"] if is_device else ["limit", "both", "request"])
        if how != "request":
            claim["limits"][name] = other
        if how != "limit":
            claim["requests"][name] = other if is_device else one
    resources = {part: amounts for part, amounts in claim.items() if amounts}
    return {"name": f"c{number}", "image": "i", "resources": resources, **fields}


def spec(dice, *, is_limited):
    # Without the defaults of a LimitRange, the quota requires these resources in each container.
    required = () if is_limited else ("cpu", "memory")
    restarts = ({}, {"restartPolicy": "Always"})
    made = {
        "containers": [container(dice, each, required) for each in range(dice.randint(1, 3))],
        "initContainers": [
            container(dice, 10 + each, required, **dice.choice(restarts))
            for each in range(dice.choice([0, 0, 1, 2, 3]))
        ],
    }
    if dice.random() < 0.3:
        made |= {"runtimeClassName": "heavy", "overhead": OVERHEAD}
    if dice.random() < 0.3:
        part = dice.choice(["requests", "limits"])
        made["resources"] = {part: {name: WHOLE[name] for name in dice.choice([WHOLE, ["cpu"], ["memory"]])}}
        if is_limited:
            # Defaults for a pod as a whole are set before those of a LimitRange, and would then be too small.
            made["resources"] = {"requests": WHOLE}
    return made


def counted(message):
    """Return the requests in a quota error, without zero amounts."""
    found = re.search(r"exceeded quota: all, requested: (?P<asked>\S+), used:", message)
    assert found is not None, message
    pairs = (each.split("=") for each in found["asked"].split(","))
    return {name.removeprefix("requests."): parse(quantity).nano for name, quantity in pairs}


@pytest.mark.parametrize("namespace", [NAMESPACE, LIMITED])
def test_pod_requests_equal_the_quota_usage_of_the_api_server(counting, namespace):
    dice = Random(SEED)
    is_limited = namespace == LIMITED
    # For every second pod, the operator creates a worker with a master.
    made = [(spec(dice, is_limited=is_limited), number % 2 == 0) for number in range(PODS)]

    def count_request(each):
        pod_spec, is_worker = each
        last = {"name": "init-pytorch", "image": "i", "resources": {"requests": OPERATORS}}
        begun = [*pod_spec["initContainers"], *([last] if is_worker else [])]
        return counted(answer(counting, pod({**pod_spec, "initContainers": begun}, namespace)))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(count_request, made))
    for (pod_spec, is_worker), counts in zip(made, answers, strict=True):
        roles = [ReplicaRole.MASTER, ReplicaRole.WORKER] if is_worker else [ReplicaRole.WORKER]
        added = DEFAULT.list_added_containers(ReplicaRole.WORKER, roles)
        defaults = GIVEN if is_limited else pod_requests.NOTHING
        ours = pod_requests.compute_pod_requests(pod_spec, added, defaults)
        assert {name: each.nano for name, each in ours.items() if each} == counts, (SEED, pod_spec)
