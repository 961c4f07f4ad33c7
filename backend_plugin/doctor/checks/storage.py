"""Checks of the output stores."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.doctor.check import CheckList, Violation
from backend_plugin.doctor.facts import Facts, Subject

CHECKS: Final = CheckList()


@CHECKS.add(
    "output-store", "an object below the output prefix can be written, read and deleted", Subject.STORES
)
def _check_output_store(facts: Facts) -> Iterator[Violation]:
    for each in facts.stores:
        if each.trouble:
            yield Violation(
                sentence=f"{each.what}: {each.trouble}",
                remedy=each.remedy,
                is_unknown=not each.is_tried,
            )
