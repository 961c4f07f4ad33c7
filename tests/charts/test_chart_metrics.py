"""The dashboard and the alerts of the chart use the metrics of the server, in valid PromQL."""

import re

import chart_files
import promql_parser
import pytest
from chart_files import ROOT
from prometheus_client import Histogram
from promql_parser import AggregateExpr, VectorSelector
from server_metrics import get_exported_name, list_metrics

from backend_plugin.core.dialects.table import DIALECTS

ALERTS = [rule for group in chart_files.read("files/alerts.yaml")["groups"] for rule in group["rules"]]
PANELS = chart_files.read("files/dashboard.json")["panels"]
# Prometheus adds these labels to each time series of a pod.
OF_THE_TARGET = {"job", "namespace", "pod"}
PAGE = ROOT / "docs/how-to/respond-to-alerts.md"


def series():
    """Return the labels of each time series that the server and Prometheus have, by name."""
    found = {
        "up": set(),
        "process_resident_memory_bytes": set(),
        "process_cpu_seconds_total": set(),
    }
    for part in list_metrics():
        name, labels = get_exported_name(part), {*part._labelnames}
        if isinstance(part, Histogram):
            found |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": labels}
        else:
            found[name] = labels
    return {name: labels | OF_THE_TARGET for name, labels in found.items()}


SERIES = series()


def expressions():
    """Yield all expressions, with their variables replaced as Grafana and the template do."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "4m").replace("$job", "a-metrics")
    yield from map(rendered, ALERTS)


def rendered(rule):
    return rule["expr"].replace("SELECTOR", 'job="a-metrics", namespace="a"').replace("WAITING", "60")


def nodes(expression):
    found = []
    promql_parser.walk(expression, found.append)
    return found


@pytest.mark.parametrize("expression", [*expressions()])
def test_each_expression_uses_existing_metrics_and_labels(expression: str) -> None:
    parts = nodes(promql_parser.parse(expression))
    selectors = [each for each in parts if isinstance(each, VectorSelector)]
    assert selectors
    for selector in selectors:
        assert {each.name for each in selector.matchers.matchers} <= SERIES[selector.name]
        assert "job" in {each.name for each in selector.matchers.matchers}
    labels = set().union(*(SERIES[each.name] for each in selectors))
    for each in parts:
        if isinstance(each, AggregateExpr) and each.modifier is not None:
            assert {*each.modifier.labels} <= labels


def test_dashboard_shows_all_metrics():
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    names = {metric._name for metric in list_metrics()}
    assert {name for name in names if not re.search(rf"\b{name}(_total|_bucket)?{{", shown)} == set()


def test_legends_use_labels_that_the_expression_keeps():
    for panel in PANELS:
        for target in panel["targets"]:
            outer = promql_parser.parse(target["expr"].replace("$__rate_interval", "4m"))
            kept = {*outer.modifier.labels} if isinstance(outer, AggregateExpr) and outer.modifier else None
            assert kept is None or {*re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))} <= kept, target


def test_each_panel_has_a_unique_position_and_id():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_is_explained_in_its_section(rule: dict[str, str]) -> None:
    annotations, name = rule["annotations"], rule["alert"]
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"] == f"RUNBOOKS#{name.lower()}"
    assert f"\n## {name}\n" in PAGE.read_text()
    parts = nodes(promql_parser.parse(rendered(rule)))
    grouped = [each.modifier.labels for each in parts if isinstance(each, AggregateExpr) and each.modifier]
    assert {*re.findall(r"\$labels\.(\w+)", annotations["description"])} <= set().union(*grouped)


def test_stale_watch_alert_selects_pods_and_all_kinds_of_jobs():
    rule = next(each for each in ALERTS if each["alert"] == "KfpytorchWatchStale")
    [kinds] = re.findall(r'kind=~"([^"]+)"', rule["expr"])
    jobs = [f"{each.resource.plural}.{each.resource.group}" for each in DIALECTS.values()]
    assert all(re.fullmatch(kinds, kind) for kind in ["pods", *jobs])
    assert not re.fullmatch(kinds, "events")


def test_default_runbook_page_lists_the_alerts_with_their_severity():
    assert ROOT / chart_files.read("values.yaml")["metrics"]["prometheusRule"]["runbooks"] == PAGE
    rows = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(rule["alert"], rule["alert"].lower(), rule["labels"]["severity"]) for rule in ALERTS]


def test_metric_names_follow_the_conventions():
    for part in list_metrics():
        if isinstance(part, Histogram):
            assert part._name.endswith("_seconds")
        assert not part._name.endswith(("_total", "_count", "_sum", "_bucket"))
