"""Log links of each replica, from Flyte's link templates and their variables."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import structs

from backend_plugin.core.dialects import table
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.observed import Job, Pod, ReplicaSpec
from backend_plugin.core.settings.judging import LogLinkSettings, LogTemplate


class LogLink(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A link as Flyte's console shows it."""

    name: str
    uri: str
    message_format: str = "UNKNOWN"
    show_while_pending: bool = False
    hide_once_finished: bool = False


class LogLinkTarget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The target of a log link: one replica, or the job as a whole."""

    job: Job
    rules: JudgingContext
    finish: datetime
    """The end of the job, or the present time if it has not ended."""
    name: str
    """The label in the link, such as ``worker-0 (rank 1)``; ``(all replicas)`` for the job as a whole."""
    pod_name: str = ""
    """The name of the replica's pod; empty for the whole job.

    If the pod of a TrainJob does not exist yet, this is only the start of its name.
    """
    pod: Pod | None = None


def _format_rfc3339(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _format_unix_time(moment: datetime | None) -> str:
    return "" if moment is None else str(int(moment.timestamp()))


def _get_container_id(target: LogLinkTarget) -> str:
    container = target.pod.primary if target.pod else None
    return container.id.rpartition("://")[2] if container else ""


_OF_POD: Final[Mapping[str, Callable[[LogLinkTarget], str]]] = {
    "podname": lambda target: target.pod_name,
    "poduid": lambda target: target.pod.uid if target.pod else "",
    "containerid": _get_container_id,
    "hostname": lambda target: target.pod.hostname if target.pod else "",
    "nodename": lambda target: target.pod.node if target.pod else "",
    "logname": lambda target: target.name,
}
"""The variables of link templates that describe a pod, each with the function that returns its value.

A template with one of these variables gives one link for each replica. A template without any of these
variables gives one link for the whole job.
"""

VARIABLES: Final[Mapping[str, Callable[[LogLinkTarget], str]]] = {
    **_OF_POD,
    "namespace": lambda target: target.job.namespace,
    "containername": lambda target: table.get_dialect(target.job.dialect).container,
    "podrfc3339starttime": lambda target: _format_rfc3339(target.job.created),
    "podrfc3339finishtime": lambda target: _format_rfc3339(target.finish),
    "podunixstarttime": lambda target: _format_unix_time(target.job.created),
    "podunixfinishtime": lambda target: _format_unix_time(target.finish),
    "taskid": lambda target: target.rules.run.task_name if target.rules.run else "",
    "taskversion": lambda target: target.rules.run.task_version if target.rules.run else "",
    "taskproject": lambda target: target.rules.run.task_project if target.rules.run else "",
    "taskdomain": lambda target: target.rules.run.task_domain if target.rules.run else "",
    "taskretryattempt": lambda target: str(target.rules.run.attempt) if target.rules.run else "",
    "nodeid": lambda target: target.rules.run.node_id if target.rules.run else "",
    "executionname": lambda target: target.rules.run.execution if target.rules.run else "",
    "executionproject": lambda target: target.rules.run.project if target.rules.run else "",
    "executiondomain": lambda target: target.rules.run.domain if target.rules.run else "",
    "generatedname": lambda target: target.job.name,
}
"""Functions that return the values of Flyte's link variables, by the name of the variable in lower case."""

_VARIABLE: Final = re.compile(r"\{\{\s*[.$](?=(?P<name>\w{1,40}(?:\.[\w-]{1,100})?))(?P=name)\s*\}\}")
_KUBERNETES: Final = "/#!/log/{{ .namespace }}/{{ .podName }}/pod?namespace={{ .namespace }}"
_CLOUDWATCH: Final = (
    "https://console.aws.amazon.com/cloudwatch/home?region=%s#logEventViewer:group=%s;"
    "stream=var.log.containers.{{ .podName }}_{{ .namespace }}_{{ .containerName }}-{{ .containerId }}.log"
)
_STACKDRIVER: Final = (
    "https://console.cloud.google.com/logs/viewer?project=%s&angularJsUrl=%%2Flogs%%2Fviewer%%3Fproject%%3D%s"
    "&resource=%s&advancedFilter=resource.labels.pod_name%%3D{{ .podName }}"
)


@lru_cache(maxsize=64)
def _is_of_replica(template: str) -> bool:
    """True if the URI template has a variable with a different value for each replica."""
    return any(name.lower() in _OF_POD for name in _split_template(template)[1::2])


@lru_cache(maxsize=64)
def _split_template(template: str) -> list[str]:
    """Split a template into the text before the first variable, its name, the text after it, and so on."""
    return _VARIABLE.split(template)


def _fill_template(template: str, target: LogLinkTarget) -> str:
    parts = _split_template(template).copy()
    parts[1::2] = [_get_value(name, target) for name in parts[1::2]]
    return "".join(parts)


def _get_value(name: str, target: LogLinkTarget) -> str:
    """Return the value of a link variable; an unknown variable stays in the link, as in Flyte."""
    known = VARIABLES.get(name.lower())
    if known is not None:
        return known(target)
    prefix, _, key = name.partition(".")
    if prefix.lower() == "taskconfig" and key:
        return target.rules.task_config.get(key, "")
    return "{{ ." + name + " }}"


def _select_templates(logs: LogLinkSettings, task_config: Mapping[str, str]) -> tuple[LogTemplate, ...]:
    """Return the link templates that are enabled, configured, or named in the task's ``link_type``."""
    if not task_config and not (
        logs.kubernetes_enabled or logs.cloudwatch_enabled or logs.stackdriver_enabled
    ):
        return logs.templates  # The usual case: with this and the caches, `judge` takes 15 % less time.
    kubernetes = logs.kubernetes_url + _KUBERNETES
    cloudwatch = _CLOUDWATCH % (logs.cloudwatch_region, logs.cloudwatch_log_group)
    stackdriver = _STACKDRIVER % (logs.gcp_project, logs.gcp_project, logs.stackdriver_logresourcename)
    builtin = (
        (logs.kubernetes_enabled, "Kubernetes Logs", "UNKNOWN", logs.kubernetes_template_uri or kubernetes),
        (logs.cloudwatch_enabled, "Cloudwatch Logs", "UNKNOWN", logs.cloudwatch_template_uri or cloudwatch),
        (logs.stackdriver_enabled, "Stackdriver Logs", "JSON", logs.stackdriver_template_uri or stackdriver),
    )
    own = [
        LogTemplate(name=name, template_uris=(uri,), message_format=form)
        for is_enabled, name, form, uri in builtin
        if is_enabled
    ]
    requested = {kind.strip() for kind in task_config.get("link_type", "").split(",")}
    dynamic = [logs.dynamic_log_links[kind] for kind in sorted(requested & logs.dynamic_log_links.keys())]
    return (*own, *logs.templates, *dynamic)


def build_links(
    job: Job | None, pods: Iterable[Pod], rules: JudgingContext, finish: datetime
) -> tuple[LogLink, ...]:
    """Return the log links of a job: first those of the whole job, then those of each replica.

    `finish` is the end of the job, or the present time if it has not ended.
    """
    known = _select_templates(rules.logs, rules.task_config)
    if not known or job is None:
        return ()
    of_job: list[LogLink] = []
    of_replicas: list[LogLink] = []
    whole_job = LogLinkTarget(job=job, rules=rules, finish=finish, name="(all replicas)")
    replicas = _list_replicas(whole_job, pods)
    for template in known:
        label = template.display_name or template.name
        for uri in (*template.template_uris, *template.dynamic_template_uris):
            links, targets = (of_replicas, replicas) if _is_of_replica(uri) else (of_job, [whole_job])
            links += [
                LogLink(
                    name=f"{label} {target.name}",
                    uri=_fill_template(uri, target),
                    message_format=template.message_format,
                    show_while_pending=template.show_while_pending,
                    hide_once_finished=template.hide_once_finished,
                )
                for target in targets
            ]
    return (*of_job, *of_replicas)


# Thousands of links are not readable, and every response contains all of them.
_MOST_PLACES: Final = 512


def _list_replicas(whole_job: LogLinkTarget, pods: Iterable[Pod]) -> list[LogLinkTarget]:
    job = whole_job.job
    by_replica = {(pod.role, pod.index): pod for pod in pods}
    build_pod_name = table.get_dialect(job.dialect).build_pod_name
    # A rendezvous assigns the ranks of an elastic job, so the labels cannot contain them.
    processes = 0 if job.elastic else job.nproc_per_node or 0
    listed: list[LogLinkTarget] = []
    for role, index, name in _list_labels(job.groups, processes):
        pod = by_replica.get((role, index))
        # Until the pod of a TrainJob exists, the last five characters of its name are unknown.
        pod_name = build_pod_name(job, role, index) if pod is None else pod.name
        listed.append(structs.replace(whole_job, name=name, pod_name=pod_name, pod=pod))
    return listed


# Most jobs of a cluster have one of a few layouts.
@lru_cache(maxsize=64)
def _list_labels(groups: tuple[ReplicaSpec, ...], processes: int) -> list[tuple[str, int, str]]:
    """Return the role, index and label of each replica, for at most `_MOST_PLACES` replicas."""
    ranges = ((group.role, range(min(group.replicas, _MOST_PLACES))) for group in groups)
    places = [(role, index) for role, indexes in ranges for index in indexes][:_MOST_PLACES]
    return [
        (role, index, f"{role}-{index}{_format_ranks(number * processes, processes)}")
        for number, (role, index) in enumerate(places)
    ]


def _format_ranks(first: int, count: int) -> str:
    if count <= 0:
        return ""
    return f" (rank {first})" if count == 1 else f" (ranks {first}-{first + count - 1})"
