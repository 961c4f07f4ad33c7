"""The table of all checks; runs them against the facts, and reports what could not be read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from backend_plugin.doctor import deployments, kubectl_commands
from backend_plugin.doctor.check import Check, Finding, Severity
from backend_plugin.doctor.checks import (
    api_server,
    connector,
    flyte,
    gang,
    job,
    network,
    nodes,
    queues,
    quotas,
    references,
    security,
    templates,
)
from backend_plugin.doctor.facts import DryRunReply, Facts, NotReadable, Subject
from backend_plugin.doctor.operators import table as operators

CHECKS: Final[tuple[Check, ...]] = (
    *api_server.CHECKS,
    *operators.CHECKS,
    *gang.CHECKS,
    *queues.CHECKS,
    *job.CHECKS,
    *templates.CHECKS,
    *quotas.CHECKS,
    *nodes.CHECKS,
    *network.CHECKS,
    *security.CHECKS,
    *references.CHECKS,
    *flyte.CHECKS,
    *connector.CHECKS,
)
"""All checks. Findings of one severity are reported in this order."""
NOT_READABLE: Final = "not-readable"
"""The id of the findings for subjects that could not be read."""
EXIT_CODES: Final = {Severity.ERROR: 1, Severity.WARNING: 3, Severity.UNKNOWN: 4, Severity.NOTE: 0}
"""The exit code by the severity of the worst finding; 2 is for usage errors."""


def list_findings(facts: Facts, checks: Sequence[Check] = CHECKS) -> Sequence[Finding]:
    """Return all findings, the worst first. If the API server is unreachable, that is the only finding."""
    found = [
        Finding(
            id=check.id,
            level=Severity.UNKNOWN if each.is_unknown else check.level,
            sentence=each.sentence,
            remedy=each.remedy,
        )
        for check in _select_checks(facts, checks)
        for each in check.judge(facts)
    ]
    lost = [] if facts.unreachable else _report_read_failures(facts.unseen)
    return sort_findings([*found, *lost])


def list_skipped_checks(facts: Facts, checks: Sequence[Check] = CHECKS) -> Sequence[str]:
    """Return the ids of the checks that did not run, or that could not determine if there is a problem."""
    selected = _select_checks(facts, checks)
    made = {check.id for check in selected if not any(each.is_unknown for each in check.judge(facts))}
    return [check.id for check in checks if check.id not in made]


def _select_checks(facts: Facts, checks: Sequence[Check]) -> Sequence[Check]:
    if facts.unreachable:
        return [check for check in checks if check.id == "api-unreachable"]
    missing = {*facts.unseen, *_list_unobservable(facts)}
    return [check for check in checks if not missing & {*check.needs}]


def _list_unobservable(facts: Facts) -> Iterable[Subject]:
    """Return the subjects without facts to check, such as the connector if the user did not name it."""
    has = {
        Subject.ROLES: facts.task.roles,
        Subject.JOB_TRIAL: facts.job_reply != DryRunReply(),
        Subject.INVALID_TRIAL: facts.invalid_reply != DryRunReply(),
        Subject.POD_TRIALS: facts.pod_replies,
        Subject.FLYTE_CONFIG: facts.get_objects(Subject.FLYTE_CONFIG),
        Subject.RIGHTS: deployments.list_connectors(facts),
        Subject.STORES: facts.stores,
        Subject.CONNECTOR: facts.connector is not None,
    }
    return [subject for subject, is_there in has.items() if not is_there]


def sort_findings(found: Iterable[Finding]) -> Sequence[Finding]:
    """Return the findings, the worst first."""
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.level))


def get_exit_code(found: Sequence[Finding]) -> int:
    """Return the exit code: 1 if the worst finding is an error, 3 for a warning, 4 for unknown, or else 0."""
    return EXIT_CODES[sort_findings(found)[0].level] if found else 0


def _report_read_failures(unseen: Mapping[Subject, NotReadable]) -> Sequence[Finding]:
    """Return one finding for all missing permissions, and one for each other failure to read a subject."""
    forbidden = {subject: each for subject, each in unseen.items() if each.rules}
    found = [_build_permission_finding(forbidden)] if forbidden else []
    for subject, each in unseen.items():
        if not each.rules:
            found.append(_build_read_finding({subject: each}, each.reason, each.remedy))
    return found


def _build_permission_finding(forbidden: Mapping[Subject, NotReadable]) -> Finding:
    first = next(iter(forbidden.values()))
    rules = [rule for each in forbidden.values() for rule in each.rules]
    user = next((each.user for each in forbidden.values() if each.user), "")
    reason = f"{first.reason} (and {len(rules) - 1} more)" if len(rules) > 1 else first.reason
    return _build_read_finding(forbidden, reason, kubectl_commands.build_grant_command(rules, user))


def _build_read_finding(unseen: Mapping[Subject, NotReadable], reason: str, remedy: str) -> Finding:
    without = ", ".join(check.id for check in CHECKS if {*unseen} & {*check.needs})
    looked_at = ", ".join(subject.value for subject in unseen)
    return Finding(
        id=NOT_READABLE,
        level=Severity.UNKNOWN,
        sentence=f"could not read {looked_at}: {reason}; not checked: {without or 'nothing'}",
        remedy=remedy,
    )
