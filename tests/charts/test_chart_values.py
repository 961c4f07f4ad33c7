"""The chart's values match the server and are described on their page. UPDATE=1 writes the page."""

import json
import os
import re

import chart_files
import chart_rules
import pytest
from chart_files import PAGE, ROOT, SCHEMA
from chart_rules import PREREQUISITES

from backend_plugin.core import settings
from backend_plugin.core.scheduling.adapter import QUEUE, SCHEDULER_NAME, TIMEOUT
from backend_plugin.core.scheduling.gang_settings import AUTO, NONE
from backend_plugin.core.scheduling.registry import ADAPTERS
from backend_plugin.core.settings import loader
from backend_plugin.doctor import access_review, queries
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.kube.api_resources import JOBS, KINDS

BEGUN, ENDED = "<!-- values -->\n", "<!-- end of values -->\n"
SCHEMA_OF = json.loads(SCHEMA.read_text())
GANGS = chart_files.read("files/gangs.yaml")
# Value names of the chart, and the option names of the server.
UNDERSTOOD = {"schedulerName": SCHEDULER_NAME, "queue": QUEUE, "scheduleTimeout": TIMEOUT}


def updated(path, text):
    """True if a file has this text. With UPDATE set, write the text first."""
    if os.environ.get("UPDATE"):
        path.write_text(text)
    return bool(path.read_text() == text)


def test_page_lists_each_chart_value():
    page = PAGE.read_text()
    before, after = page.partition(BEGUN)[0], page.partition(ENDED)[2]
    assert updated(PAGE, f"{before}{BEGUN}\n{chart_files.table()}\n{ENDED}{after}"), "UPDATE=1 writes it"


def test_each_value_is_in_the_schema_and_described():
    paths = {path for path, _ in chart_files.leaves(SCHEMA_OF)} - {"global"}
    assert set(chart_files.descriptions()) == paths


def test_schema_rejects_additional_properties():
    def closed(part):
        inner = [*part.get("properties", {}).values()]
        return (not inner or part.get("additionalProperties") is False) and all(map(closed, inner))

    assert closed(SCHEMA_OF)
    assert all(map(closed, SCHEMA_OF["$defs"].values()))


def test_values_schema_file_is_generated_with_required_values():
    values = chart_files.demanding(SCHEMA_OF, chart_files.read("values.yaml"))
    schema = {**values, "$defs": chart_files.definitions()}
    assert updated(SCHEMA, json.dumps(schema, indent=2) + "\n"), "UPDATE=1 writes it"


def test_generated_rules_match_the_tables():
    assert updated(chart_rules.FILE, chart_rules.build_file()), "UPDATE=1 writes it"


def test_gang_schedulers_of_the_chart_match_the_server():
    def describe_adapter(name):
        adapters = ADAPTERS[name]
        (adapter, *_) = adapters.values()
        understood = [key for key, its in UNDERSTOOD.items() if its in adapter.understands]
        is_after_kueue = not (adapter.admits or adapter.not_after_admission)
        return {
            "schedulerName": adapter.scheduler_name,
            "podGroupsBy": sorted(filter(None, adapters)),
            "understands": sorted([*understood, *(["localQueue"] if is_after_kueue else [])]),
        }

    ours = {
        name: {
            "schedulerName": gang.get("schedulerName", ""),
            "podGroupsBy": sorted(gang.get("podGroupsBy", [])),
            "understands": sorted(gang["understands"]),
        }
        for name, gang in GANGS.items()
        if name not in (NONE, AUTO)
    }
    assert ours == {name: describe_adapter(name) for name in ADAPTERS}
    assert set(SCHEMA_OF["properties"]["gang"]["properties"]["scheduler"]["enum"]) == {*GANGS}


def test_each_gang_setting_has_a_chart_value():
    values = SCHEMA_OF["properties"]["gang"]["properties"]
    assert {re.sub("([A-Z])", r"-\1", name).lower() for name in values} == {*loader._GANG}


def test_chart_version_matches_the_package():
    (version,) = re.findall(r'^    version="(.+)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    chart = chart_files.read("Chart.yaml")
    assert chart["appVersion"] == version
    assert chart["version"].replace("-", ".").replace("dev.", "dev") == version


def test_chart_rules_match_the_table_of_the_page():
    page = (ROOT / "docs/how-to/run-the-connector.md").read_text()
    rows = re.findall(r"^\| (core|`[a-z.].*?) \| (`[a-z/`, ]+) \| ([a-z, ]+)", page, re.MULTILINE)
    listed = []
    for groups, resources, verbs in rows:
        apis = {"" if each == "core" else each for each in re.findall(r"[\w.-]+", groups)}
        # The column of API groups may also name the scheduler.
        apis -= {*ADAPTERS, "for"}
        found = {"resources": re.findall(r"[\w/]+", resources), "verbs": re.findall(r"\w+", verbs)}
        listed.append({"apiGroups": apis, **found})
    rules = chart_files.read("files/rules.yaml")
    parts = [*rules["server"], *rules["gangs"], *rules["dryRuns"]]
    parts += [*rules["operators"], *rules["gangsEverywhere"], *rules["clusterRuntimes"]]
    assert chart_files.permissions(listed) == chart_files.permissions([*parts, *rules["groups"].values()])


def test_watched_kinds_have_list_and_watch_rules():
    followed = {
        (kind.resource.group, kind.resource.plural, verb) for kind in KINDS for verb in ("list", "watch")
    }
    permitted = chart_files.permissions(chart_files.read("files/rules.yaml")["server"])
    listed = {(each.group, each.plural, "list") for each in PREREQUISITES}
    assert followed | listed == {each for each in permitted if each[2] in ("list", "watch")}


@pytest.mark.parametrize(("scheduler", "tries_pod"), [("none", False), ("kueue", False), ("auto", True)])
def test_doctor_requires_chart_rules_and_pod_dry_runs_for_auto(scheduler: str, tries_pod: bool) -> None:
    rules = chart_files.read("files/rules.yaml")
    permitted = chart_files.permissions([*rules["server"], *(rules["dryRuns"] if tries_pod else ())])
    facts = Facts(
        namespace="ns",
        settings=settings.read({"kfpytorch": {"gang": {"scheduler": scheduler}}}),
        objects={Subject.GROUPS: [{"name": each.resource.group} for each in KINDS]},
    )
    required = {
        (rule.group, rule.resource, verb) for rule in access_review.required(facts) for verb in rule.verbs
    }
    assert required <= permitted
    uses_of_jobs = {each for each in permitted if each[0] in ("kubeflow.org", "trainer.kubeflow.org")}
    assert uses_of_jobs | {("kueue.x-k8s.io", "workloads", "patch")} <= required
    assert (("", "pods", "create") in required) is (("", "pods", "create") in permitted) is tries_pod


DRY_RUNS = {
    *((each.group, each.plural, "create") for each in JOBS.values()),
    *((each.group, each.plural, "create") for each in PREREQUISITES),
    ("", "pods", "create"),
}
REVIEW = ("authorization.k8s.io", "subjectaccessreviews", "create")
"""Check of the permissions of the server's account."""
# Omitted from the chart, because permission to list Secrets includes their contents.
SECRETS = ("", "secrets", "list")
SCHEDULERS = ("kueue", "volcano", "kai")


def test_chart_rules_of_the_doctor_match_its_requests():
    rows = [
        *queries.build_base_queries("team", "flyte", "flyte"),
        *(row for scheduler in SCHEDULERS for row in queries.build_gang_queries(scheduler, "team")),
        queries.build_bound_pod_query("scheduler"),
        queries.build_config_map_query("kube-system", "scheduler"),
    ]
    asked = {(row.resource.group, row.resource.plural, "get" if row.name else "list") for row in rows}
    permitted = chart_files.permissions(chart_files.read("files/rules.yaml")["doctor"])
    assert permitted == (asked - {SECRETS}) | DRY_RUNS | {REVIEW}
