"""The generated RBAC rules of the chart, from the tables of dialects and of gang schedulers."""

import re
from pathlib import Path

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers
from backend_plugin.kube.api_resources import JOBS, build_api_resource, list_group_kinds

PREREQUISITES = [build_api_resource(each.prerequisite) for each in DIALECTS.values() if each.prerequisite]
"""The resources of the objects that must exist before the jobs."""

FILE = Path(__file__).parent.parent / "charts/kfpytorch-backend/files/rules.yaml"
_PART = re.compile(r"(?<=  # generated: )(\w+)\n.*?(?=  # end\n)", re.DOTALL)


def build_file():
    """Return the content of the file with the rules, with new generated parts."""
    schedulers = list_schedulers().values()
    queues = [each.queues for each in schedulers if each.queues is not None]
    observed = [
        each for one in schedulers for each in (one.queues, one.parent_queues, one.priorities) if each
    ]
    pod_groups = [(each.resource.group, each.resource.plural) for each in list_group_kinds()]
    jobs = [(each.group, each.plural) for each in JOBS.values()]
    prerequisites = [(each.group, each.plural) for each in PREREQUISITES]
    deactivated = [
        each.groups for each in schedulers if each.groups and each.status_parser.deactivation is not None
    ]
    parts = {
        "jobs": _format_rules(jobs, ("create", "get", "list", "watch", "patch", "delete")),
        "prerequisites": _format_rules(prerequisites, ("create", "list", "patch", "delete")),
        # Sorted, so that the order of the adapters does not change the chart.
        "pod_groups": _format_rules(sorted(pod_groups, reverse=True), ("list", "watch")),
        "deactivated": _format_rules(((each.group, each.plural) for each in deactivated), ("patch",)),
        "queues": _format_list_rules(each for each in queues if each.is_namespaced),
        "cluster_queues": _format_list_rules(each for each in queues if not each.is_namespaced),
        "cluster_runtimes": _format_list_rules(_list_cluster_runtimes()),
        "companions": "\n".join(
            f"  {name}:\n    {_format_rule([each.group], [each.plural], ('create', 'delete'))}"
            for name, each in _list_created_groups()
        ),
        "doctor_jobs": _format_rules(jobs, ("list", "create")),
        "doctor_prerequisites": _format_rules(prerequisites, ("create",)),
        "doctor_queues": _format_list_rules(sorted(observed, key=lambda each: not each.is_namespaced)),
    }
    text = FILE.read_text()
    assert _PART.findall(text) == [*parts]
    return _PART.sub(lambda found: f"{found[1]}\n{parts[found[1]]}\n", text)


def _list_cluster_runtimes():
    for dialect in DIALECTS.values():
        if dialect.runtimes is not None:
            yield from (each for each in dialect.runtimes.kinds if not each.namespaced)


def _list_created_groups():
    """Return the pod groups that the connector creates, by the name of the scheduler."""
    for name, adapters in sorted(ADAPTERS.items()):
        for each in adapters.values():
            if each.companion is not None and each.groups is not None:
                yield name, each.groups


def _format_list_rules(resources):
    return _format_rules(((each.group, each.plural) for each in resources), ("list",))


def _format_rules(resources, verbs):
    """Return one rule for each set of resources, with all API groups that have them."""
    plurals = {}
    for group, plural in resources:
        plurals.setdefault(group, []).append(plural)
    groups = {}
    for group, names in plurals.items():
        groups.setdefault(tuple(names), []).append(group)
    return "\n".join(f"  - {_format_rule(each, names, verbs)}" for names, each in groups.items())


def _format_rule(groups, plurals, verbs):
    return (
        f"apiGroups: [{', '.join(groups)}]\n"
        f"    resources: [{', '.join(plurals)}]\n"
        f"    verbs: [{', '.join(verbs)}]"
    )
