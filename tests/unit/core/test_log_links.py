# ruff: noqa: E501 - a row a case
"""Tests for log links from Flyte's templates."""

from datetime import timedelta

import pytest
from cluster import BEGAN, FAILED, RUNNING, SUCCEEDED, job
from cluster_pods import pod

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import Attempt
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.log_links import LogLink, build_links
from backend_plugin.core.object_readers import read_pod
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.settings.judging import LogLinkSettings, LogTemplate

RUN = Attempt(output_prefix="s3://b/x", project="p", domain="d", execution="e", node_id="n0", attempt=1, task_project="tp", task_domain="td", task_name="t", task_version="v", namespace="ns")  # fmt: skip
POD = pod("worker-0", container={"containerID": "containerd://abc"}, metadata={"uid": "u1"})


def filled(template: str, **about) -> list[str]:
    logs = LogLinkSettings(templates=(LogTemplate(name="L", template_uris=(template,)),))
    known = build_links(read_job(job()), [read_pod(POD)], JudgingContext(logs=logs, run=RUN, **about), BEGAN)
    return [link.uri for link in known]


OF_POD = "{{ .podName }}|{{.podUID}}|{{ $containerID }}|{{ .nodeName }}|{{ .hostname }}"
OF_TASK = "{{ .taskID }}.{{ .taskVersion }}.{{ .taskProject }}.{{ .taskDomain }}.{{ .taskRetryAttempt }}"
VARIABLES = {
    OF_POD: ["j-master-0||||", "j-worker-0|u1|abc|n1|j-worker-0"],
    "{{ .PODNAME }}": ["j-master-0", "j-worker-0"],
    "{{ .logName }}": ["master-0", "worker-0"],
    "{{ .namespace }}/{{ .containerName }}/{{ .generatedName }}": ["ns/pytorch/j"],
    "{{ .podUnixStartTime }}-{{ .podUnixFinishTime }}": ["1767225600-1767225600"],
    "{{ .podRFC3339StartTime }}": ["2026-01-01T00:00:00Z"],
    OF_TASK: ["t.v.tp.td.1"],
    "{{ .executionProject }}/{{ .executionDomain }}/{{ .executionName }}/{{ .nodeID }}": ["p/d/e/n0"],
    "{{ .taskConfig.port }}:{{ .taskConfig.none }}": ["8080:"],
    "{{ .unknown }}": ["{{ .unknown }}"],
    "plain": ["plain"],
}


@pytest.mark.parametrize(("template", "uris"), VARIABLES.items())
def test_template_variables_of_flyte_are_replaced(template, uris):
    assert filled(template, task_config={"port": "8080"}) == uris


@pytest.mark.parametrize(("condition", "finish"), [(RUNNING, 500), (FAILED, 100), (SUCCEEDED, 100)])
def test_finish_time_of_an_ended_job_without_a_completion_time_is_that_of_its_condition(condition, finish):
    template = LogTemplate(name="L", template_uris=("{{ .podUnixFinishTime }}",))
    rules = JudgingContext(logs=LogLinkSettings(templates=(template,)))
    (link,) = judge(Observed(job=read_job(job(condition))), rules, BEGAN + timedelta(seconds=500)).logs
    assert int(link.uri) == BEGAN.timestamp() + finish


def test_job_links_precede_replica_links_with_unique_names():
    shown = {"message_format": "JSON", "show_while_pending": True, "hide_once_finished": True}
    uris = ("https://all/{{ .generatedName }}",)
    template = LogTemplate(name="all", display_name="All", template_uris=uris, **shown)
    logs = LogLinkSettings(kubernetes_enabled=True, kubernetes_url="https://k", templates=(template,))
    pages = [f"https://k/#!/log/ns/j-{name}/pod?namespace=ns" for name in ("master-0", "worker-0")]
    eight = {**job(), "spec": {**job()["spec"], "nprocPerNode": "8"}}
    assert build_links(read_job(eight), [], JudgingContext(logs=logs), BEGAN) == (
        LogLink(name="All (all replicas)", uri="https://all/j", **shown),
        LogLink(name="Kubernetes Logs master-0 (ranks 0-7)", uri=pages[0]),
        LogLink(name="Kubernetes Logs worker-0 (ranks 8-15)", uri=pages[1]),
    )


def test_cloudwatch_and_stackdriver_links_are_built():
    cloudwatch = {"cloudwatch_enabled": True, "cloudwatch_region": "eu", "cloudwatch_log_group": "g"}
    stackdriver = {"stackdriver_enabled": True, "gcp_project": "p", "stackdriver_logresourcename": "r"}
    rules = JudgingContext(logs=LogLinkSettings(**cloudwatch, **stackdriver))
    links = build_links(read_job(job()), [read_pod(POD)], rules, BEGAN)
    assert [(link.name, link.message_format) for link in links] == [
        (f"{kind} Logs {replica}", message_format)
        for kind, message_format in (("Cloudwatch", "UNKNOWN"), ("Stackdriver", "JSON"))
        for replica in ("master-0", "worker-0")
    ]


def test_task_selects_dynamic_links():
    template = LogTemplate(name="code", dynamic_template_uris=("https://{{ .taskConfig.port }}",))
    logs = LogLinkSettings(dynamic_log_links={"vscode": template})
    chosen = JudgingContext(logs=logs, task_config={"link_type": "vscode, other", "port": "80"})
    assert [link.uri for link in build_links(read_job(job()), [], chosen, BEGAN)] == ["https://80"]
    assert build_links(read_job(job()), [], JudgingContext(logs=logs), BEGAN) == ()
    assert build_links(None, [], chosen, BEGAN) == ()


def test_ranks_are_in_link_names_if_they_are_known():
    names = {"1": "worker-0 (rank 1)", "-1": "worker-0", "auto": "worker-0", "2": "worker-0"}
    logs = LogLinkSettings(templates=(LogTemplate(name="L", template_uris=("{{ .podName }}",)),))
    for processes, name in names.items():
        elastic = {"elasticPolicy": {"minReplicas": 1}} if processes == "2" else {}
        manifest = {**job(), "spec": {**job()["spec"], "nprocPerNode": processes, **elastic}}
        assert build_links(read_job(manifest), [], JudgingContext(logs=logs), BEGAN)[1].name == f"L {name}"
