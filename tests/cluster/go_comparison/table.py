"""Writes the comparison page, docs/explanation/comparison-with-the-go-plugin.md."""

import re
from collections import Counter

from rig.control_plane import BACKEND, PROPELLER
from rig.images import REPOSITORY

_NAMES = re.compile(r"\bf[0-9a-f]{19}(-n0-\d)?(-[0-9a-f]{12})?")
# Keep the end of a traceback, which contains the error.
_LONGEST = 260


def page(pairs, calls):
    """Return the tables of messages and of cost, and the requests of our server that concern no task."""
    others = Counter(each.verb for each in calls if each.user == BACKEND and not each.name)
    besides = ", ".join(f"{count} {verb}" for verb, count in sorted(others.items()))
    return (
        "\n".join(
            [*_words(pairs), "", *_figures(pairs), "", f"Besides, about no task: {besides or 'nothing'}."]
        )
        + "\n"
    )


def _words(pairs):
    yield "| what happens | Flyte's own plugin | ours |"
    yield "|---|---|---|"
    for what, pair in pairs.items():
        yield "| " + " | ".join([what, *map(_format_record, pair)]) + " |"


def _format_record(run):
    # Every task has these phases.
    phases = [each for each in run.shown if each.phase != "QUEUED"]
    cells = []
    for each in phases:
        text = _shortened(each.message or each.reason)
        cells.append(f"{each.phase}, {each.at - run.execution.created:.0f} s" + (text and f": {text}"))
    return "<br>".join(cells) or "nothing"


def _shortened(message):
    text = " ".join(
        _NAMES.sub("JOB", message.replace(f"{REPOSITORY}/", ""))
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .split()
    )
    return text if len(text) <= _LONGEST else "… " + text[-_LONGEST:]


def _figures(pairs):
    yield "| what happens | until the last phase | API calls | pods that run on | attempts |"
    yield "|---|---|---|---|---|"
    for what, (theirs, ours) in pairs.items():
        calls = [
            theirs.count_requests(PROPELLER),
            ours.count_requests(PROPELLER) + ours.count_requests(BACKEND),
        ]
        cells = [
            f"{_seconds(theirs)}, {_seconds(ours)}{_ratio(theirs.took, ours.took)}",
            f"{calls[0]}, {ours.count_requests(PROPELLER)} + {ours.count_requests(BACKEND)}{_ratio(*calls)}",
            f"{theirs.running}, {ours.running}",
            f"{theirs.attempts}, {ours.attempts}",
        ]
        yield "| " + " | ".join([what, *cells]) + " |"


def _seconds(run):
    if run.took is not None:
        return f"{run.took:.1f} s"
    return "none" if run.gone_after is None else f"none (gone {run.gone_after:.1f} s after the abort)"


def _ratio(theirs, ours):
    return f" ({ours / theirs:.2f})" if theirs and ours else ""
