"""Tests for a pod in which FlytePropeller or a PodTemplate has set fields that the plan does not repeat."""

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
    refused,
    rendered,
    request,
    unrendered,
)

from backend_plugin.core.job import Placement, Resources
from backend_plugin.core.manifest.pod import build_pod_templates

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
TERM = {"matchExpressions": [{"key": "z", "operator": "Exists"}]}
REQUIREMENT = {"key": "spot", "operator": "DoesNotExist"}
REQUIRING = {"non-interruptible-node-selector-requirement": REQUIREMENT}
BOTH = {"matchExpressions": [*TERM["matchExpressions"], REQUIREMENT]}
BARE = {"matchExpressions": [REQUIREMENT]}
FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
NAMED = {"metadata": {"podTemplateName": "named"}}


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
        "spec": {**spec, "containers": [{**trainer, "env": [OF_RUN[0], *FOR_TRAINING[:1], *TRUTHFUL]}]},
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
    assert resources(pod(rendered({"containers": claims(primary={}, logs=own)})))["logs"] == meant


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


def labelled(name: str, namespace: str):
    return pod_template(name, namespace, metadata={"labels": {"from": f"{namespace}.{name}"}})


# Name in the task, default name, namespaces that have the template -> namespace of the selected template.
LOOKUPS: list[tuple[str, str, list[str], str | None]] = [
    ("", "", ["p-d", "flyte"], None),
    ("", "base", [], None),
    ("", "base", ["elsewhere"], None),
    ("", "base", ["p-d", "flyte"], "p-d.base"),
    ("", "base", ["flyte", "p-d"], "p-d.base"),
    ("", "base", ["flyte"], "flyte.base"),
    ("named", "base", ["flyte", "p-d"], "p-d.named"),
    ("named", "", ["flyte"], "flyte.named"),
]


@pytest.mark.parametrize(("name", "default", "namespaces", "found"), LOOKUPS)
def test_pod_template_is_looked_up_by_name_and_namespace(name, default, namespaces, found):
    known = [labelled(each, namespace) for namespace in namespaces for each in ("base", "named")]
    template = container({"metadata": {"podTemplateName": name}})
    made = pod(template, {"default-pod-template-name": default}, *known, {"metadata": None}, {})
    assert made["metadata"] == {**METADATA, **({"labels": {"from": found}} if found else {})}


@pytest.mark.parametrize("template", [{"spec": {"containers": []}}, {}])
def test_pod_template_without_a_container_is_rejected(template):
    ((field, _),) = refused(container(NAMED), {}, {**pod_template("named", "flyte"), "template": template})
    assert field == "podTemplates.flyte.named.template.spec.containers"


def fields_warned_of(*known, name: str = "named") -> list[str]:
    task = request(container({"metadata": {"podTemplateName": name}}), {"default-pod-template-name": "base"})
    _, warnings = build_pod_templates(structs.replace(task, pod_templates=known), [WORKER])
    return [each.field for each in warnings]


def test_unknown_fields_of_a_pod_template_are_warned_about():
    base = pod_template("named", "flyte", nodeSelectors={"a": "b"}, containers=[{"name": "x", "imag": "i"}])
    base |= {"kind": "PodTemplate", "apiVersion": "v1", "spec": {}}
    base["metadata"]["uid"] = "u"
    assert fields_warned_of(base) == [
        "podTemplates.flyte.named.spec",
        "podTemplates.flyte.named.template.spec.containers[0].imag",
        "podTemplates.flyte.named.template.spec.nodeSelectors",
    ]
    assert fields_warned_of(pod_template("named", "flyte")) == []


def test_missing_pod_template_of_the_platform_is_warned_about():
    assert fields_warned_of(name="") == ["default-pod-template-name"]
    assert fields_warned_of(pod_template("base", "flyte"), name="") == []


def test_system_namespace_is_a_setting():
    section = {"default-pod-template-name": "base", "kfpytorch": {"pod-template-namespace": "sys"}}
    made = pod(container(), section, labelled("base", "flyte"), labelled("base", "sys"))
    assert made["metadata"]["labels"] == {"from": "sys.base"}


def test_pod_template_that_the_task_names_must_exist():
    (problem,) = refused(container(NAMED), {}, labelled("named", "elsewhere"))
    assert problem == ("metadata.podTemplateName", '"named"')


@pytest.mark.parametrize(
    ("stored", "meant"), [("default-scheduler", None), ("of-the-template", "of-the-template")]
)
def test_default_scheduler_set_by_the_api_server_is_ignored(stored, meant):
    base = pod_template(schedulerName=stored)
    assert pod(container(), {"default-pod-template-name": "base"}, base)["spec"].get("schedulerName") == meant


def test_repeated_variables_and_ports_of_a_sidecar_are_written_once():
    lists = {
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}],
    }
    made = pod(rendered({"containers": [{"name": "primary"}, {"name": "side", **lists}]}))
    _, side = made["spec"]["containers"]
    assert (side["env"], side["ports"]) == ([lists["env"][1], OF_RUN[0]], lists["ports"][:2])


def test_port_of_a_sidecar_with_two_names_is_rejected():
    ports = [{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b", "protocol": "TCP"}]
    ((field, _),) = refused(rendered({"containers": [{"name": "primary"}, {"name": "side", "ports": ports}]}))
    assert field == "k8sPod.podSpec.containers[1].ports[1]"


def test_required_field_may_be_in_the_pod_template():
    probes = ({"httpGet": {"path": "/ready"}}, {"httpGet": {"port": 80}})
    (own, default) = ({"livenessProbe": each, "image": "x"} for each in probes)
    template = unrendered({"name": "main", **own})
    template.metadata.pod_template_name = "base"
    made = pod(template, {}, pod_template(containers=[{"name": "default", **default}]))
    assert made["spec"]["containers"][0]["livenessProbe"] == {"httpGet": {"path": "/ready", "port": 80}}
    ((field, _),) = refused(template, {}, pod_template())
    assert field == "k8sPod.podSpec.containers[0].livenessProbe.httpGet.port"
