"""The objects and settings that the chart renders are accepted by the real API server and by our server.

Each folder in `charts` is a case. `objects.yaml` has all objects of the case without values, and only the
changed lines in the others. `UPDATE=1` writes the files; review the difference before you commit.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from rig.api import build_manifest
from rig.helm import CHART, NAMESPACE, Helm, Refused

from backend_plugin.cli import serve_settings
from backend_plugin.shell.settings import ClusterKind

HERE = Path(__file__).parent / "charts"
CASES = sorted(each.name for each in HERE.iterdir())
PLAIN = "nothing-said"
# Kinds of operators that are not installed here.
FOREIGN = {"Certificate", "PrometheusRule", "ServiceMonitor"}
DASHBOARD = (CHART / "files/dashboard.json").read_text()
LEFT_TO_OTHERS = {
    "podSecurityContext",
    "podSecurityContext.runAsUser",
    "podSecurityContext.runAsGroup",
    "podSecurityContext.fsGroup",
    "resources",
    "doctor.resources",
    "topologySpreadKeys",
}

REFUSED = {
    "replicas: 0": "at '/replicas': minimum: got 0, want 1",
    "replica: 2": "at '': additional properties 'replica' not allowed",
    "gang: {scheduler: slurm}": "at '/gang/scheduler': value must be one of 'none', 'auto', ",
    "gang: {scheduler: volcano}": "gang.podGroupsBy: '' does not define what creates the groups of volcano;",
    "gang: {podGroupsBy: backend}": "gang.podGroupsBy: backend is not supported by none; leave it out",
    "podTemplates: {enabled: true}": "podTemplates.enabled: true has no effect with gang",
    "tls: {clientCaKey: ca.crt}": "tls.clientCaKey: ca.crt has no effect without TLS",
    "tls: {clientNames: [a]}": "tls.clientNames: a has no effect without a CA for client certificates",
    "tls: {certManager: {enabled: true}}": "tls.certManager.issuerRef.name: '' is not",
    "metrics: {enabled: false, dashboard: {enabled: true}}": "metrics.dashboard.enabled: true requires",
    "metrics: {prometheusRule: {enabled: true}}": "metrics.prometheusRule.enabled: true needs the labels",
    "metrics: {port: 8000}": "metrics.port: 8000 is also",
    "service: {nodePort: 30443}": "service.nodePort: 30443 has no effect",
    "platform: {default-cpu: 1}": "at '/platform': additional properties 'default-cpu' not allowed",
    "platform: {kfpytorch: {gang: {scheduler: kai}}}": "additional properties 'gang' not allowed",
    "namespaces: [Flytesnacks_Development]": "at '/namespaces/0': 'Flytesnacks_Development' does not match",
    "fullnameOverride: My_Backend": "fullnameOverride: the name of the objects would be My_Backend",
    "commonLabels: {app.kubernetes.io/name: x}": "commonLabels: the chart sets app.kubernetes.io/name",
    "server: {port: 70000}": "at '/server/port': maximum: got 70,000, want 65,535",
    "gang: {byProject: {a: {scheduler: kueue}}}": "invalid propertyName 'a'",
    "gang: {allowedSchedulers: {kueue: {scheduler: kai}}}": "at '/gang/allowedSchedulers/kueue': additional",
    "service: {type: LoadBalancer}": "networkPolicy.enabled: true blocks",
    "service: {type: NodePort}": "blocks the clients of the NodePort",
    "networkPolicy: {enabled: false}": "lets every pod of the cluster start pods",
    "signing: {existingSecret: My_Keys}": "at '/signing/existingSecret': 'My_Keys' does not match pattern",
    "gang: {scheduler: kueue, queue: 'team a'}": "at '/gang/queue': 'team a' does not match pattern",
    "extraVolumes: [{name: tmp, emptyDir: {}}]": "extraVolumes: the name tmp is already in use",
    "extraVolumeMounts: [{name: ca, mountPath: /ca}]": "extraVolumeMounts: there is no volume ca",
    "{extraVolumes: [{name: ca}], extraVolumeMounts: [{name: ca, mountPath: /tmp/}]}": "path /tmp/ is",
    "extraEnv: [{name: KFPYTORCH_PORT, value: '9'}]": "extraEnv: KFPYTORCH_PORT overrides server.port",
    "extraEnv: [{name: HOME, value: /home}]": "extraEnv: the chart sets HOME",
    "service: {externalTrafficPolicy: Local}": "service.externalTrafficPolicy: Local has no effect",
    "service: {type: LoadBalancer, loadBalancerSourceRanges: ['::/0']}": (
        "blocks requests that one node forwards to another"
    ),
    "networkPolicy: {allowedCIDRs: [10.0.0.0/99]}": "at '/networkPolicy/allowedCIDRs/0': '10.0.0.0/99' does",
    "metrics: {serviceMonitor: {interval: 1.5m}}": "at '/metrics/serviceMonitor/interval': '1.5m' does not",
    "resources: {requests: {cpu: abc}}": "at '/resources/requests/cpu': 'abc' does not match pattern",
    "platform: {kfpytorch: {timeouts: {queue-timeout: 5 minutes}}}": "queue-timeout': '5 minutes' does not",
    "gang: {allowedSchedulers: {none: {}}}": "invalid propertyName 'none'",
    "gang: {allowedSchedulers: {volcano: {}}}": "volcano.pod-groups-by: '' does not define what creates",
    "gang: {byNamespace: {a: {queue: q}}}": "gang.byNamespace.a.queue: q is not supported by none; leave",
    "outputPrefixes: ['https://flyte-data/']": "at '/outputPrefixes/0': 'https://flyte-data/' does not match",
    "namespaces: [kfpytorch]": "namespaces: kfpytorch is the namespace of the release",
    "namespaceTemplate: '{{ team }}'": "at '/namespaceTemplate': '{{ team }}' does not match pattern",
    "serviceAccount: {create: false}": "serviceAccount.name: '' requires serviceAccount.create: true",
    "service: {loadBalancerClass: internal}": "service.loadBalancerClass: internal has no effect",
    "service: {loadBalancerSourceRanges: [10.0.0.0/8]}": "has no effect with service.type: ClusterIP",
    "podSecurityContext: {runAsUser: 0}": "at '/podSecurityContext/runAsUser': minimum: got 0, want 1",
    "image: {repository: 'registry.example/backend:2.0'}": "at '/image/repository': 'registry.example/back",
    f"fullnameOverride: {'x' * 53}": "at '/fullnameOverride': maxLength: got 53, want 52",
}


@pytest.fixture
def helm(programs, tmp_path):
    return Helm(tmp_path)


def values(case):
    return yaml.safe_load((HERE / case / "values.yaml").read_text())


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and the dashboard as the name of its file."""


def represent_text(dumper, text):
    shown = "the content of files/dashboard.json" if text == DASHBOARD else text
    return dumper.represent_scalar("tag:yaml.org,2002:str", shown, "|" if "\n" in shown else None)


Dumper.add_representer(str, represent_text)


def dump(document):
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, width=110)


def index_by_name(objects):
    """Return the objects by kind and name, with RELEASE in place of the name that values can change."""
    (release,) = (each["metadata"]["name"] for each in objects if each["kind"] == "Deployment")
    keys = (
        "/".join((each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]))
        for each in objects
    )
    return dict(zip((key.replace(release, "RELEASE") for key in keys), objects, strict=True))


def compare(objects, plain):
    """Return the changed lines of the objects that are in both cases, and the other objects."""
    originals = {name: find_original(name, plain) for name in objects}
    changes = {name: list_changes(originals[name], each) for name, each in objects.items() if originals[name]}
    return {
        "changed": {name: lines for name, lines in changes.items() if lines},
        "added": [each for name, each in objects.items() if not originals[name]],
        "removed": sorted({*plain} - {*objects}),
    }


def find_original(name, plain):
    """Return the object to compare with: for a Role, the ClusterRole of the same name."""
    kind, _, own = name.split("/")
    return plain.get(name) or plain.get(f"Cluster{kind}//{own}", {})


def list_changes(before, after):
    """Return a unified diff with one line of context, without line numbers."""
    texts = (dump(each).splitlines() for each in (before, after))
    lines = [*difflib.unified_diff(*texts, n=1, lineterm="")][2:]
    return "\n".join("@@" if each.startswith("@@") else each.rstrip() for each in lines)


@pytest.mark.parametrize("case", CASES)
def test_rendered_objects_equal_the_golden_file(case, helm):
    plain = {} if case == PLAIN else index_by_name(helm.rendered(values(PLAIN)))
    rendered = dump(compare(index_by_name(helm.rendered(values(case))), plain))
    file = HERE / case / "objects.yaml"
    if os.environ.get("UPDATE"):
        file.write_text(rendered)
    assert rendered == file.read_text()


@pytest.mark.parametrize("case", CASES)
def test_rendered_objects_pass_strict_api_validation(case, helm, bare):
    objects = [each for each in helm.rendered(values(case)) if each["kind"] not in FOREIGN]
    for namespace in {each["metadata"].get("namespace") for each in objects} - {None}:
        bare.namespace(namespace)
    for name in {each["spec"].get("priorityClassName") for each in objects if each["kind"] == "Pod"} - {None}:
        if not name.startswith("system-"):
            bare.admin.apply(build_manifest("scheduling.k8s.io/v1", "PriorityClass", name, value=1))
    for each in objects:
        answer = bare.admin.try_create(each, fieldValidation="Strict")
        assert answer.is_success, f"{each['kind']}: {answer.text}"


@pytest.mark.parametrize("case", CASES)
def test_server_accepts_the_rendered_settings(case, helm, tmp_path):
    objects = helm.rendered(values(case))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    name = deployment["metadata"]["name"]
    (settings,) = (one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name)
    file = tmp_path / "settings.yaml"
    file.write_text(settings["data"]["settings.yaml"])
    server_settings = serve_settings.read_configuration(str(file), {}).server.settings
    assert server_settings.cluster is ClusterKind.KUBERNETES
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= server_settings.drain_timeout.total_seconds() + 10
    ports = {
        each["name"]: each["containerPort"]
        for each in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    expected = {"grpc": server_settings.port} | (
        {"metrics": server_settings.metrics_port} if server_settings.metrics_port else {}
    )
    assert ports == expected


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_values_are_rejected_with_a_message(text, helm):
    with pytest.raises(Refused) as refusal:
        helm.rendered(yaml.safe_load(text))
    assert REFUSED[text] in str(refusal.value)


def test_all_invalid_values_are_reported_together(helm):
    with pytest.raises(Refused) as refusal:
        helm.rendered({"gang": {"scheduler": "kai", "podGroupsBy": "backend"}, "metrics": {"port": 8000}})
    assert "gang.podGroupsBy: backend" in str(refusal.value)
    assert "metrics.port: 8000" in str(refusal.value)


@pytest.mark.parametrize(
    ("creator", "dialect", "is_permitted"),
    [
        ("operator", "pytorchjob", False),
        ("operator", "auto", True),  # The job may be a TrainJob, whose operator creates no pod group.
        ("backend", "pytorchjob", True),
    ],
)
def test_pod_groups_can_be_created_if_the_connector_creates_some(creator, dialect, is_permitted, helm):
    gang = {"scheduler": "volcano", "podGroupsBy": creator}
    objects = helm.rendered({"gang": gang, "platform": {"kfpytorch": {"dialect": dialect}}})
    rules = [rule for each in objects for rule in each.get("rules", ())]
    verbs = {verb for rule in rules if "podgroups" in rule["resources"] for verb in rule["verbs"]}
    assert ("create" in verbs, "delete" in verbs) == (is_permitted, is_permitted)


def test_namespace_with_the_name_of_a_scheduler_does_not_hide_its_pod_groups(helm):
    gang = {
        "byNamespace": {"volcano": {"scheduler": "coscheduling", "pod-groups-by": "backend"}},
        "allowedSchedulers": {"volcano": {"pod-groups-by": "operator"}},
    }
    objects = helm.rendered({"gang": gang, "platform": {"kfpytorch": {"dialect": "pytorchjob"}}})
    rules = [rule for each in objects for rule in each.get("rules", ()) if "create" in rule["verbs"]]
    groups = [each for rule in rules if "podgroups" in rule["resources"] for each in rule["apiGroups"]]
    assert groups == ["scheduling.x-k8s.io"]


def paths(values, path=""):
    for key, value in values.items():
        yield f"{path}{key}"
        if isinstance(value, Mapping) and key != "resources":
            yield from paths(value, f"{path}{key}.")


def test_null_value_is_rejected_or_means_default_or_omission(helm):
    plain, differing, refused = helm.rendered({}), set(), dict[str, str]()
    for path in paths(yaml.safe_load((CHART / "values.yaml").read_text())):
        changed = None
        for key in reversed(path.split(".")):
            changed = {key: changed}
        try:
            if helm.rendered(changed) != plain:
                differing.add(path)
        except Refused as refusal:
            refused[path] = str(refusal)
    demands = {path: f"missing property '{path.rpartition('.')[2]}'" for path in refused}
    assert {path: message for path, message in refused.items() if demands[path] not in message} == {}
    assert {"gang", "image.repository", "rbac.create"} <= {*refused}
    assert differing == LEFT_TO_OTHERS


def test_service_name_is_valid_or_the_release_name_is_rejected(helm):
    documents = yaml.safe_load_all(helm.run("template", "team.pytorch", CHART, "--namespace", NAMESPACE))
    services = [each["metadata"]["name"] for each in documents if each and each["kind"] == "Service"]
    assert services == [f"team-pytorch-kfpytorch-backend{part}" for part in ("", "-metrics")]
    with pytest.raises(Refused) as refusal:
        helm.run("template", "1st", CHART)
    assert "fullnameOverride: the name of the objects would be 1st-kfpytorch-backend" in str(refusal.value)


def test_chart_notes_contain_the_tls_limitations_of_propeller(helm):
    plain, encrypted = helm.notes({}), helm.notes({"tls": {"existingSecret": "tls"}})
    closed = helm.notes({"tls": {"existingSecret": "tls", "clientCaKey": "ca.crt"}})
    authority, between = "authorities of its own system", "neither a client certificate nor a token"
    contained = [[words in notes for words in (authority, between)] for notes in (plain, encrypted, closed)]
    assert contained == [[False, False], [True, False], [True, True]]


def test_helm_lint_reports_no_failure(helm):
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART)


def test_pods_are_admitted_at_the_restricted_security_level(helm, bare):
    bare.namespace(NAMESPACE)
    path = f"/api/v1/namespaces/{NAMESPACE}"
    bare.admin.patch(path, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    (deployment,) = (each for each in helm.rendered({}) if each["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    fields = {**template["metadata"], "spec": template["spec"]}
    answer = bare.admin.try_create(build_manifest("v1", "Pod", "server", NAMESPACE, **fields))
    assert answer.is_success, answer.text
