"""Tests for the pod of a `k8s_pod` task: the plan does not repeat what FlytePropeller has added."""

from dataclasses import replace

import pytest
from msgspec import structs
from pods import (
    FOR_TRAINING,
    METADATA,
    OF_RUN,
    RUN,
    SPEC,
    TRUTHFUL,
    WORKER,
    container,
    pod,
    pod_template,
    rendered,
)

from backend_plugin.core.job import Placement, Resources

GPUS = Resources(limits={"nvidia.com/gpu": "8"})
EVERYTHING = {
    "default-env-vars": {"A": "1"},
    "default-tolerations": [{"key": "a", "operator": "Exists"}],
    "default-node-selector": {"a": "b"},
    "default-affinity": {"nodeAffinity": {}},
    "scheduler-name": "volcano",
    "enable-host-networking-pod": True,
    "default-pod-security-context": {"runAsUser": 1},
    "default-security-context": {"privileged": True},
    "default-pod-dns-config": {"nameservers": ["::1"]},
    "non-interruptible-node-selector-requirement": {"key": "spot", "operator": "DoesNotExist"},
    "image-pull-policy": "Always",
}
# Encoded as in Flyte's Go plugin.
SECRET = (
    "m4zg54lqhiqcezzcbjvwk5j1eargcxbclrxfymzqgnodenjreifg122vnz1f53tfof1ws3tfnvsw34b1ebdestcfbjsw34s6"
    "ozqxeoraejcsecq"
)
DEVICE = "k8s.amazonaws.com/accelerator"
NCCL = FOR_TRAINING[:1]
TERM = {"matchExpressions": [{"key": "z", "operator": "Exists"}]}


def claims(**containers):
    return [{"name": name.replace("_", "-"), "resources": claim} for name, claim in containers.items()]


def resources(made, kind: str = "containers"):
    return {each["name"]: each["resources"] for each in made["spec"][kind]}


def affinity(*terms):
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def test_settings_applied_by_propeller_are_not_applied_again():
    spec = {"containers": [{"name": "primary", "args": ["train"]}], "affinity": {}, "restartPolicy": "Never"}
    trainer = {"name": "pytorch", "image": "trainer:v1", "args": ["train"], "resources": {}}
    assert pod(rendered(spec), EVERYTHING, run=replace(RUN, environment={"A": "2"})) == {
        "metadata": METADATA,
        "spec": {**spec, "containers": [{**trainer, "env": [OF_RUN[0], *NCCL, *TRUTHFUL]}]},
    }


@pytest.mark.parametrize("primary", ["", "gone"])
def test_only_container_is_primary_under_any_name(primary):
    made = pod(rendered({"containers": [{"name": "override"}]}, primary))
    assert [each["name"] for each in made["spec"]["containers"]] == ["pytorch"]


def test_role_resources_are_merged_into_the_training_container_only():
    own = {part: {"cpu": "1", "memory": "1Gi"} for part in ("limits", "requests")}
    spec = {
        "containers": claims(primary=own, logs=own),
        "initContainers": [
            {"name": "init", "image": "i", "resources": own},
            {"name": "proxy", "image": "i", "resources": own, "restartPolicy": "Always"},
        ],
    }
    made = pod(rendered(spec), group=structs.replace(WORKER, resources=GPUS))
    more = {part: {**amounts, "nvidia.com/gpu": "8"} for part, amounts in own.items()}
    assert resources(made) == {"pytorch": more, "logs": own}
    assert resources(made, "initContainers") == {"init": more, "proxy": own}


# The resources of a sidecar as FlytePropeller renders them, and as the plan writes them.
TWO = {"a.b/c": "2"}
BOTH_TWO = {"requests": TWO, "limits": TWO}
HUGE = {part: {"hugepages-2Mi": "2Mi"} for part in ("requests", "limits")}
SIDECARS = [
    (
        {"requests": {"cpu": "1", "memory": "0"}, "limits": {"cpu": "0", "memory": "0"}},
        {"requests": {"cpu": "1", "memory": "0"}, "limits": {"memory": "0"}},
    ),
    ({"requests": TWO, "limits": {"a.b/c": "0"}}, BOTH_TWO),
    ({"requests": {"a.b/c": "0"}, "limits": TWO}, BOTH_TWO),
    ({"requests": TWO}, BOTH_TWO),
    ({"limits": TWO}, {"limits": TWO}),
    ({"limits": {"gpu": "2"}}, {"limits": {"nvidia.com/gpu": "2"}}),
    ({"limits": {"cpu": 0.5, "memory": 1024}}, {"limits": {"cpu": "500m", "memory": "1024"}}),
    (HUGE, HUGE),
]


@pytest.mark.parametrize(("own", "meant"), SIDECARS)
def test_sidecar_resources_are_completed_like_the_api_server_does(own, meant):
    spec = {"containers": claims(primary={}, logs=own)}
    assert resources(pod(rendered(spec)))["logs"] == meant


def test_sidecar_does_not_keep_resources_of_the_primary_template_container():
    of_primary = {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}, "requests": {"cpu": "4"}}
    taken = {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}, "requests": {"nvidia.com/gpu": "0", "cpu": "4"}}
    base = pod_template(containers=claims(primary=of_primary, same=of_primary))
    spec = {"containers": claims(main={}, logs=taken, same=taken)}
    made = pod(rendered(spec, "main"), {"default-pod-template-name": "base"}, base)
    kept = {"limits": taken["limits"], "requests": {"nvidia.com/gpu": "8", "cpu": "4"}}
    nothing = {"limits": {"cpu": "0"}, "requests": {"cpu": "0"}}
    assert resources(made) == {"pytorch": {}, "logs": nothing, "same": kept}


def test_role_resources_add_tolerations_and_affinity():
    base = pod_template(tolerations=[{"key": "base", "operator": "Exists"}])
    section = {
        "default-pod-template-name": "base",
        "resource-tolerations": {"nvidia.com/gpu": [{"key": "gpu", "operator": "Exists"}]},
        "add-tolerations-for-extended-resources": ["nvidia.com/gpu"],
    }
    own = [{"key": "base", "operator": "Exists"}, {"key": "own", "operator": "Exists"}]
    template = rendered(
        {"containers": [{"name": "primary"}], "tolerations": own},
        extendedResources={"gpuAccelerator": {"device": "a100"}},
    )
    spec = pod(template, section, base, group=structs.replace(WORKER, resources=GPUS))["spec"]
    assert spec["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        *own,
        {"key": DEVICE, "operator": "Equal", "value": "a100", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    label = {"key": DEVICE, "operator": "In", "values": ["a100"]}
    assert spec["affinity"] == affinity({"matchExpressions": [label]})
    assert pod(template, section, base)["spec"].get("affinity") is None


REQUIREMENT = {"key": "spot", "operator": "DoesNotExist"}
REQUIRING = {"non-interruptible-node-selector-requirement": REQUIREMENT}
BOTH = {"matchExpressions": [*TERM["matchExpressions"], REQUIREMENT]}
BARE = {"matchExpressions": [REQUIREMENT]}
FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


@pytest.mark.parametrize(
    ("terms", "meant"),
    [
        ([TERM, BARE], [BOTH]),
        ([TERM, BOTH], [BOTH, BOTH]),
        ([TERM, {**BARE, **FIELDS}], [BOTH, {**BARE, **FIELDS}]),
        ([BARE], [BARE]),
    ],
)
def test_platform_requirement_is_added_to_the_affinity_of_a_pod_template(terms, meant):
    section = {"default-pod-template-name": "base", **REQUIRING}
    base = pod_template(affinity=affinity(TERM))
    template = rendered({"containers": [{"name": "primary"}], "affinity": affinity(*terms)})
    assert pod(template, section, base)["spec"]["affinity"] == affinity(*meant)


def test_role_template_cannot_bypass_a_platform_requirement():
    place = Placement(pod_template={"spec": {"affinity": affinity(TERM), "hostname": "x"}})
    group = structs.replace(WORKER, placement=place)
    spec = {"containers": [{"name": "primary"}], "affinity": affinity(BARE)}
    for template in (rendered(spec), container()):
        made = pod(template, REQUIRING, group=group)["spec"]
        assert (made["affinity"], made["hostname"]) == (affinity(BOTH), "x")


def test_pod_metadata_is_merged_and_the_last_layer_wins():
    names = ("default", "base", "task", "run")
    layers = [{name: name for name in names[index:]} | {"all": name} for index, name in enumerate(names)]
    secret = {"group": "g", "key": 'a"\né', "mountRequirement": "FILE", "envVar": "E"}
    base = pod_template(metadata={"labels": layers[1], "annotations": layers[1]})
    template = rendered(
        SPEC | {"containers": [{"name": "primary"}]},
        k8sPod={"metadata": {"labels": layers[2], "annotations": layers[2]}},
        metadata={"podTemplateName": "base"},
        securityContext={"secrets": [secret, {}]},
    )
    section = {"default-labels": layers[0], "default-annotations": layers[0]}
    run = replace(RUN, labels=layers[3], annotations=layers[3], execution_identity="-Jo@@Ex/" + "x" * 99)
    expected = {"default": "default", "base": "base", "task": "task", "run": "run", "all": "run"}
    assert pod(template, section, base, run=run)["metadata"] == {
        "labels": {**expected, "inject-flyte-secrets": "true", "execution-identity": "jo-ex-" + "x" * 56},
        "annotations": {**expected, "flyte.secrets/s0": SECRET, "flyte.secrets/s1": ""},
    }


def test_resource_claims_are_kept_beside_the_amounts():
    gpu = [{"name": "gpu", "request": "one"}]
    containers = claims(primary={"claims": gpu}, proxy={"claims": gpu, "requests": {"cpu": "1"}})
    resource_claims = [{"name": "gpu", "resourceClaimName": "gpus"}]
    made = pod(rendered({"containers": containers, "resourceClaims": resource_claims}))["spec"]
    assert [each["resources"]["claims"] for each in made["containers"]] == [gpu, gpu]
    assert made["resourceClaims"] == resource_claims
