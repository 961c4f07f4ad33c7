"""The time of every regular expression of the project grows linearly with the length of the text."""

import re
import time
from heapq import nlargest
from itertools import islice

import pytest

from backend_plugin.core import rejection
from backend_plugin.core.dialects.trainjob import policies
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.embedded.pod_addresses import PodAddresses
from backend_plugin.embedded.pod_volumes import MountPaths
from tests.hostile_texts import Recipe, Use, read_uses, recipes

_LONGEST = 250_000
# A pattern takes 15 ms at most on an idle processor. A busy one takes up to twice as long for the same work.
_SECONDS = 0.05
# The caller's work for each match does not count. Callers limit the texts in which they replace.
_MATCHES = 20_000
_TRIES = 8
_SLOWEST = 3
_POD = {
    "metadata": {"name": "j-worker-0", "namespace": "ns", "labels": {"training.kubeflow.org/job-name": "j"}}
}
_MADE = {
    "backend_plugin/core/rejection.py: words": [*map(re.compile, rejection._REMEDIES)],
    "backend_plugin/embedded/operators/trainjob/job_spec.py": [re.compile(policies._DISRUPTED)],
    "backend_plugin/embedded/pod_addresses.py": [PodAddresses.from_pod(_POD).pattern],
    "backend_plugin/embedded/pod_volumes.py": [
        MountPaths.from_directories({"/dev/shm": "/a", "/data/x": "/b"}).pattern
    ],
}
# Its function matches whole values, and rejects longer ones before the match.
_NAME_RULES = "backend_plugin/core/pod_rules/name_rules.py"
_USES, _UNKNOWN = read_uses()


def test_each_use_of_a_regular_expression_is_found() -> None:
    assert len(_USES) > 50
    assert not [each for each in _UNKNOWN if not _find_builder(each.where)]


@pytest.mark.parametrize("use", _USES, ids=lambda use: use.where)
def test_pattern_is_matched_in_bounded_time(use: Use) -> None:
    if use.where.startswith(_NAME_RULES):
        _check(use.pattern, "fullmatch", name_rules._LOOKED_AT)
        return
    for method in use.methods:
        _check(use.pattern, method)


@pytest.mark.parametrize("unknown", _UNKNOWN, ids=lambda each: each.where)
def test_built_pattern_is_matched_in_bounded_time(unknown) -> None:
    method = next(each for each in ("fullmatch", "search", "compile") if f"re.{each}(" in unknown.source)
    for pattern in _find_builder(unknown.where):
        _check(pattern, "sub" if method == "compile" else method)


def _find_builder(where: str) -> "list[re.Pattern[str]]":
    return next((found for name, found in _MADE.items() if where.startswith(name)), [])


def _check(pattern: "re.Pattern[str]", method: str, longest: int = _LONGEST) -> None:
    worst = recipes(pattern)
    # Short texts already show superlinear time, so only the slowest texts are tested at full length.
    for length in dict.fromkeys(min(each, longest) for each in (4_000, 32_000, _LONGEST)):
        took = nlargest(_SLOWEST, ((_seconds(pattern, method, each, length), each) for each in worst))
        seconds, slowest = took[0]
        assert seconds < _SECONDS, f"{pattern.pattern!r}.{method}: {seconds:.3f} s for {slowest} * {length}"
        worst = [each for _, each in took]


def _seconds(pattern: "re.Pattern[str]", method: str, recipe: Recipe, length: int) -> float:
    """Return the lowest processor time of some tries, because other processes share the machine."""
    text = recipe.text(pattern, length)
    best = _once(pattern, method, text)
    for _ in range(_TRIES - 1):
        if best < _SECONDS / 4:
            break
        best = min(best, _once(pattern, method, text))
    return best


def _once(pattern: "re.Pattern[str]", method: str, text: str) -> float:
    began = time.thread_time()
    if method in ("sub", "split", "findall", "finditer"):
        for _ in islice(pattern.finditer(text), _MATCHES):
            pass
    else:
        getattr(pattern, method)(text)
    return time.thread_time() - began
