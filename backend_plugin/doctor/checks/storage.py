"""Checks of the output stores."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.doctor.check import Check, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject


def _check_output_store(facts: Facts) -> Iterator[Violation]:
    for each in facts.stores:
        if each.trouble:
            yield Violation(
                sentence=f"{each.what}: {each.trouble}",
                remedy=each.remedy,
                is_unknown=not each.is_tried,
            )


CHECKS: Final = (
    Check(
        id="output-store",
        level=Severity.ERROR,
        proves="an object below the output prefix can be written, read and deleted",
        judge=_check_output_store,
        needs=(Subject.STORES,),
    ),
)
