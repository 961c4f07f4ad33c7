"""The effective configuration of Flyte when our values are merged into those of its published charts.

Our additions are in force, and nothing else has changed.
"""

import re
from collections.abc import Mapping

import pytest
import yaml
from rig.helm import CHARTS, Helm, fetch_flyte_chart

CONFIGS = {"flyte-binary": "flyte-flyte-binary-config", "flyte-core": "flyte-propeller-config"}
OVERLAYS = [
    ("flyte-binary", "values-flyte-binary.yaml"),
    ("flyte-core", "values-flyte-core.yaml"),
    ("flyte-binary", "values-flyte-binary-stock.yaml"),
    ("flyte-core", "values-flyte-core-stock.yaml"),
]
pytestmark = pytest.mark.usefixtures("programs")
JOBS = {
    "apiGroups": ["kubeflow.org"],
    "resources": ["pytorchjobs"],
    "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
}


def render_objects(folder, chart, *files):
    """Return the objects of a chart of Flyte, rendered with several values files."""
    flags = [word for each in files for word in ("--values", each)]
    copy = fetch_flyte_chart(chart, folder)
    rendered = Helm(folder).run("template", "flyte", copy, "--namespace", "flyte", *flags)
    return [each for each in yaml.safe_load_all(rendered) if each]


def render_propeller(folder, chart, *files):
    """Return the effective configuration of propeller, merged in file order, with lower-case keys."""
    (config,) = (
        each
        for each in render_objects(folder, chart, *files)
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == CONFIGS[chart]
    )
    merged = {}
    for _, text in sorted(config["data"].items()):
        merged.update(flat(yaml.safe_load(text)))
    return merged


def flat(values, path=""):
    """Return a mapping from dotted keys to values. A list is one value: propeller does not merge lists."""
    if not isinstance(values, Mapping) or (not values and path):
        return {path: values}
    return {
        name: value
        for key, part in values.items()
        for name, value in flat(part, f"{path}.{str(key).lower()}".lstrip(".")).items()
    }


def read_propeller_settings(overlay):
    """Return the keys and values that a values file sets in the configuration of propeller."""
    values = yaml.safe_load(overlay.read_text())
    sections = [
        values.get("enabled_plugins", {}),
        values.get("configuration", {}).get("inline", {}),
        *values.get("configmap", {}).values(),
    ]
    return {key: value for section in sections if section for key, value in flat(section).items()}


@pytest.mark.parametrize(("chart", "overlay"), OVERLAYS)
def test_overlay_changes_only_its_own_keys(chart, overlay, tmp_path):
    before = render_propeller(tmp_path, chart)
    after = render_propeller(tmp_path, chart, CHARTS / overlay)
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    assert changed == read_propeller_settings(CHARTS / overlay)
    assert {*before} <= {*after}


def test_rbac_rule_for_jobs_is_added_for_stock_plugin_only(tmp_path):
    def render_rules(*files):
        objects = render_objects(tmp_path, "flyte-binary", *(CHARTS / file for file in files))
        return [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]

    before = render_rules()
    assert render_rules("values-flyte-binary.yaml") == before
    assert render_rules("values-flyte-binary-stock.yaml") == [*before, JOBS]


def test_chart_notes_contain_the_overlay_values(tmp_path):
    parts = re.split(r"^---.*\n", Helm(tmp_path).notes({}), flags=re.MULTILINE)[1:3]
    assert [yaml.safe_load(each) for each in parts] == [
        yaml.safe_load((CHARTS / f"values-{chart}.yaml").read_text()) for chart in CONFIGS
    ]


def test_chart_notes_contain_the_endpoint_of_the_installed_service(tmp_path):
    values = {
        "fullnameOverride": "connector",
        "clusterDomain": "corp.example",
        "service": {"port": 443},
        "tls": {"existingSecret": "our-tls"},
    }
    rendered = yaml.safe_load(re.split(r"^---.*\n", Helm(tmp_path).notes(values), flags=re.MULTILINE)[1])
    connector = rendered["configuration"]["inline"]["plugins"]["connector-service"]["defaultConnector"]
    assert connector["endpoint"] == "dns:///connector.kfpytorch.svc.corp.example:443"
    assert connector["insecure"] is False
