"""The chart's rules for the doctor match its requests, except for Secrets."""

import chart_files
from chart_rules import PREREQUISITES

from backend_plugin.doctor import queries
from backend_plugin.kube.api_resources import JOBS

DRY_RUNS = {
    *((each.group, each.plural, "create") for each in JOBS.values()),
    *((each.group, each.plural, "create") for each in PREREQUISITES),
    ("", "pods", "create"),
}
REVIEW = ("authorization.k8s.io", "subjectaccessreviews", "create")
"""Check of the permissions of the server's account."""
SECRETS = ("", "secrets", "list")
"""Omitted from the chart, because permission to list Secrets includes their contents."""
SCHEDULERS = ("kueue", "volcano", "kai")


def test_chart_rules_of_the_doctor_match_its_requests() -> None:
    rows = [
        *queries.build_base_queries("team", "flyte", "flyte"),
        *(row for scheduler in SCHEDULERS for row in queries.build_gang_queries(scheduler, "team")),
        queries.build_bound_pod_query("scheduler"),
        queries.build_config_map_query("kube-system", "scheduler"),
    ]
    asked = {(row.resource.group, row.resource.plural, "get" if row.name else "list") for row in rows}
    permitted = chart_files.permissions(chart_files.read("files/rules.yaml")["doctor"])
    assert permitted == (asked - {SECRETS}) | DRY_RUNS | {REVIEW}
