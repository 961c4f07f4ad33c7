"""Runs all checks against the facts, and reports unobserved subjects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from backend_plugin.doctor import deployments, roles
from backend_plugin.doctor.check import Check, Finding, Level
from backend_plugin.doctor.facts import Facts, Reply, Subject, Unseen
from backend_plugin.doctor.table import CHECKS, UNREACHABLE

_NO_REPLY: Final = Reply()
UNSEEN: Final = "unseen"
"""The id of the findings for subjects that could not be observed."""
EXIT_CODES: Final = {Level.ERROR: 1, Level.WARNING: 3, Level.UNKNOWN: 4, Level.NOTE: 0}
"""The exit code for the worst level; 2 is for usage errors."""


def findings(facts: Facts, checks: Sequence[Check] = CHECKS) -> Sequence[Finding]:
    """Return all findings, the worst first. If the API server is unreachable, return only that finding."""
    found = [
        Finding(
            id=check.id,
            level=Level.UNKNOWN if each.is_unknown else check.level,
            sentence=each.sentence,
            remedy=each.remedy,
        )
        for check in _judged(facts, checks)
        for each in check.judge(facts)
    ]
    lost = [] if facts.unreachable else _report_unseen(facts.unseen)
    return in_order([*found, *lost])


def left_out(facts: Facts, checks: Sequence[Check] = CHECKS) -> Sequence[str]:
    """Return the ids of the checks that did not run, because their subjects were not observed."""
    made = {
        check.id
        for check in _judged(facts, checks)
        if not any(each.is_unknown for each in check.judge(facts))
    }
    return [check.id for check in checks if check.id not in made]


def _judged(facts: Facts, checks: Sequence[Check]) -> Sequence[Check]:
    if facts.unreachable:
        return [check for check in checks if check.id == UNREACHABLE.id]
    missing = {*facts.unseen, *_list_untried(facts)}
    return [check for check in checks if not missing & {*check.needs}]


def _list_untried(facts: Facts) -> Iterable[Subject]:
    """Return the subjects without anything to observe."""
    has = {
        Subject.ROLES: facts.task.roles,
        Subject.JOB_TRIAL: facts.job_reply != _NO_REPLY,
        Subject.INVALID_TRIAL: facts.invalid_reply != _NO_REPLY,
        Subject.POD_TRIALS: facts.pod_replies,
        Subject.FLYTE_CONFIG: facts.of(Subject.FLYTE_CONFIG),
        Subject.RIGHTS: deployments.connectors(facts),
        Subject.STORES: facts.stores,
        Subject.CONNECTOR: facts.connector is not None,
    }
    return [subject for subject, is_there in has.items() if not is_there]


def in_order(found: Iterable[Finding]) -> Sequence[Finding]:
    """Return the findings, the worst first."""
    order = list(Level)
    return sorted(found, key=lambda each: order.index(each.level))


def exit_code(found: Sequence[Finding]) -> int:
    """Return the exit code for the worst finding."""
    order = list(Level)
    worst = min((each.level for each in found), key=order.index, default=Level.NOTE)
    return EXIT_CODES[worst]


def _report_unseen(unseen: Mapping[Subject, Unseen]) -> Sequence[Finding]:
    """Return one finding for all missing permissions, and one for each other reason."""
    forbidden = {subject: each for subject, each in unseen.items() if each.rules}
    others = [
        _unseen([subject], each.reason, each.remedy)
        for subject, each in unseen.items()
        if subject not in forbidden
    ]
    if not forbidden:
        return others
    first, *rest = forbidden.values()
    rules = [rule for each in forbidden.values() for rule in each.rules]
    user = next((each.user for each in forbidden.values() if each.user), "")
    reason = f"{first.reason} (and {len(rest)} more)" if rest else first.reason
    return [_unseen([*forbidden], reason, roles.build_command(rules, user)), *others]


def _unseen(subjects: Sequence[Subject], reason: str, remedy: str) -> Finding:
    without = ", ".join(check.id for check in CHECKS if {*subjects} & {*check.needs})
    looked_at = ", ".join(each.value for each in subjects)
    return Finding(
        id=UNSEEN,
        level=Level.UNKNOWN,
        sentence=f"could not read {looked_at}: {reason}; not checked: {without or 'nothing'}",
        remedy=remedy,
    )
