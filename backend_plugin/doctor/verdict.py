"""Every check against the facts; what could not be looked at is a finding, too."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from backend_plugin.doctor import roles
from backend_plugin.doctor.check import Check, Finding, Level
from backend_plugin.doctor.facts import Facts, Subject, Unseen
from backend_plugin.doctor.table import CHECKS, UNREACHABLE

UNSEEN: Final = "unseen"
"""The id of what could not be looked at."""
EXIT_CODES: Final = {Level.ERROR: 1, Level.WARNING: 3, Level.UNKNOWN: 4, Level.NOTE: 0}
"""By the worst level; 2 is for what was mistyped."""


def findings(facts: Facts, checks: Sequence[Check] = CHECKS) -> Sequence[Finding]:
    """All of them, the worst first; where nothing could be asked, that alone."""
    left = set(left_out(facts, checks))
    found = [
        Finding(id=check.id, level=check.level, sentence=each.sentence, remedy=each.remedy)
        for check in checks
        if check.id not in left
        for each in check.judge(facts)
    ]
    lost = [] if facts.unreachable else _report_unseen(facts.unseen)
    return in_order([*found, *lost])


def left_out(facts: Facts, checks: Sequence[Check] = CHECKS) -> Sequence[str]:
    """Those that could not be made, as what they need could not be looked at."""
    if facts.unreachable:
        return [check.id for check in checks if check.id != UNREACHABLE.id]
    return [check.id for check in checks if any(each in facts.unseen for each in check.needs)]


def in_order(found: Iterable[Finding]) -> Sequence[Finding]:
    """The worst first."""
    order = list(Level)
    return sorted(found, key=lambda each: order.index(each.level))


def exit_code(found: Sequence[Finding]) -> int:
    """Of the worst."""
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
        sentence=f"could not look at {looked_at}: {reason}; not checked: {without or 'nothing'}",
        remedy=remedy,
    )
