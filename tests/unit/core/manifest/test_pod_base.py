"""Tests for the selection of a PodTemplate and for the fields that a pod takes from it."""

import pytest
from msgspec import structs
from pods import (
    METADATA,
    OF_RUN,
    WORKER,
    container,
    pod,
    pod_template,
    refused,
    rendered,
    request,
    unrendered,
)

from backend_plugin.core.manifest.pod import find_warnings

NAMED = {"metadata": {"podTemplateName": "named"}}


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
    return [each.field for each in find_warnings(structs.replace(task, pod_templates=known), [WORKER])]


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
    made = pod(container(), {"default-pod-template-name": "base"}, base)
    assert made["spec"].get("schedulerName") == meant


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
    task = rendered({"containers": [{"name": "primary"}, {"name": "side", "ports": ports}]})
    ((field, _),) = refused(task)
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
