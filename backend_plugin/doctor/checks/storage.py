"""Checks of the output stores."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject


def _troubled(facts: Facts) -> Iterator[Found]:
    for each in facts.stores:
        if each.trouble:
            yield Found(
                sentence=f"{each.what}: {each.trouble}",
                remedy=each.remedy,
                is_unknown=not each.is_tried,
            )


CHECKS: Final = (
    Check(
        id="store",
        level=Level.ERROR,
        proves="an object below the output prefix can be written, read and deleted",
        judge=_troubled,
        needs=(Subject.STORES,),
    ),
)
