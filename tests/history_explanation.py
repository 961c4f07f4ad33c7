"""Check of an observed history against the possible results of our controller.

A history has an `id`, the job manifest, and `steps`. Each step has an action (`do`) and the `observed` state.
"""

import json
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Any

from history_replay import build_world, close_ends, plain_ends
from stored_world import World
from watching import like, played, recorded

History = Mapping[str, Any]
Observed = Mapping[str, Any]


def unexplained(history: History, observed: Sequence[Observed], *, closely: bool) -> int | None:
    """Return the index of the first step with an observed end that is not possible here, or None."""
    index, worlds = _followed(history, observed, closely=closely)
    return None if worlds else index


def complaint(history: History, observed: Sequence[Observed]) -> str:
    """Return a message with the unexplained step and the smallest difference from a possible end."""
    index, worlds = _followed(history, observed, closely=True)
    assert not worlds
    _, before = _followed(history, observed[:index], closely=True)
    do, after = history["steps"][index]["do"], observed[index]
    ends = [played(end) for world in before for end in plain_ends(world, do, after["at"])]
    found = recorded(after)
    differences = [_difference(end, found) for end in ends] or ["no end at all"]
    return f"{history['id']}, step {index}: {json.dumps(do)}\n{min(differences, key=len)}"


def _followed(history: History, observed: Sequence[Observed], *, closely: bool) -> tuple[int, list[World]]:
    """Return the index of the last step and the worlds after it; no worlds after an unexplained step."""
    worlds, index = [build_world(history)], 0
    for index, after in enumerate(observed):
        before, do = worlds, history["steps"][index]["do"]
        worlds = like([end for world in before for end in plain_ends(world, do, after["at"])], after)
        if not worlds and closely:
            worlds = _closely_like(before, do, after)
        if not worlds:
            break
    return index, worlds


def _closely_like(before: Sequence[World], do: Mapping[str, Any], after: Observed) -> list[World]:
    tried = (ends for world in before for ends in close_ends(world, do, after["at"]))
    return next((found for found in (like(ends, after) for ends in tried) if found), [])


def _difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    sides = [json.dumps(side, indent=1, sort_keys=True, default=str).splitlines() for side in (ours, theirs)]
    return "\n".join(unified_diff(*sides, "here", "the operator", lineterm="", n=4))
