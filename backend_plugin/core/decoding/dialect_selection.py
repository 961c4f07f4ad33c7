"""Selects the dialect (kind) of a job, from the settings, the task and the APIs of the cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.settings import PluginSettings, Settings

AUTO: Final = "auto"
_PATH: Final = "kfpytorch.dialect"
_BY_SETTING: Final = {each.name.lower(): each for each in table.DIALECTS.values()}


class DialectSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of Kubernetes object (dialect) that represents a job, and the reasons for this choice."""

    dialect: Dialect
    reasons: Sequence[str] = ()
    """Sentences for users; empty if task and settings conflict, or only the default dialect is possible."""
    problems: Sequence[Problem] = ()


def select_dialect(
    settings: PluginSettings, job: TrainingJob, capabilities: Capabilities
) -> DialectSelection:
    """Return the dialect (kind of job) that the task requires, or else the one that a setting selects.

    The setting ``auto`` selects a dialect that the cluster supports.
    """
    setting, path = _get_setting(settings, job)
    dialect = table.DIALECTS.get(job.dialect)
    if dialect is not None:
        reason = "the task sets options of this kind of job"
        if setting not in (AUTO, dialect.name.lower()):
            conflict = Problem(
                field="custom.kfpytorch.trainJob",
                value="{...}",
                message=f"is only for a {dialect.name}, and {path} is {setting}",
                remedy="leave it out, or ask the platform's admin for this kind of job",
            )
            return DialectSelection(dialect=dialect, problems=(conflict,))
    elif setting != AUTO:
        dialect, reason = _BY_SETTING[setting], f"set by {path}"
    else:
        return _select_served(capabilities)
    problems = [
        Problem(
            field=_PATH,
            value=dialect.name.lower(),
            message=f"cannot be used on this cluster: it has no {group}",
            remedy=f"install {dialect.operator}: {dialect.installation}",
        )
        for group in _iter_missing_groups(dialect, capabilities)
    ]
    reasons = (f"The job is a {dialect.name}: {reason}.",)
    return DialectSelection(dialect=dialect, reasons=reasons, problems=tuple(problems))


def with_dialect(settings: Settings, dialect: Dialect) -> Settings:
    """Return the settings, changed so that all jobs have this dialect (kind of job)."""
    plugin = replace(
        settings.kfpytorch,
        dialect=dialect.name.lower(),
        dialect_by_domain={},
        dialect_by_namespace={},
        dialect_by_project={},
    )
    return replace(settings, kfpytorch=plugin)


def _get_setting(settings: PluginSettings, job: TrainingJob) -> tuple[str, str]:
    run = job.run
    for part, names, key in (
        ("project", settings.dialect_by_project, f"{run.project}/{run.domain}"),
        ("project", settings.dialect_by_project, run.project),
        ("namespace", settings.dialect_by_namespace, run.namespace),
        ("domain", settings.dialect_by_domain, run.domain),
    ):
        if key in names:
            return names[key], f"{_PATH}-by-{part}.{key}"
    return settings.dialect, _PATH


def _select_served(capabilities: Capabilities) -> DialectSelection:
    """Return the first dialect that the cluster serves and whose operator is not known to be down.

    If all operators are down, return the first dialect that the cluster serves. If the cluster serves none,
    or its APIs are unknown, return the default dialect.
    """
    served = [each for each in table.DIALECTS.values() if not [*_iter_missing_groups(each, capabilities)]]
    if capabilities.apis is None or served in ([], [table.DEFAULT]):
        return DialectSelection(dialect=table.DEFAULT)
    first, *others = [
        each for each in served if each.name not in capabilities.unavailable_operators
    ] or served
    if len(served) == 1:
        why = f"the cluster has no {table.DEFAULT.resource.plural}.{table.DEFAULT.resource.group}"
    elif first is served[0]:
        kinds = " and ".join(f"{each.name}s" for each in (first, *others))
        why = f"the cluster supports {kinds}, and {first.operator} is not known to be down"
    else:
        why = f"no pod of {served[0].operator} is available"
    return DialectSelection(dialect=first, reasons=(f"The job is a {first.name}: {why}.",))


def _iter_missing_groups(dialect: Dialect, capabilities: Capabilities) -> Iterator[str]:
    """Yield the API groups that jobs of a kind (dialect) need, and that the cluster is known not to serve."""
    if capabilities.apis is None:
        return
    if dialect.resource.version not in capabilities.apis.get(dialect.resource.group, ()):
        yield f"{dialect.resource.group}/{dialect.resource.version}"
    yield from (group for group in dialect.required_groups if group not in capabilities.apis)
