"""The next step of a reflector, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.kube.course import Course, List, Pause, Watch

NEVER, ALWAYS = (lambda: 0.0), (lambda: 1.0)
NEW = List(limit=2, rest="")


def a_course(chance=NEVER):
    return Course(chance=chance, page=2)


def listed(course, version="7", now=0.0):
    course.listed(version, now)
    return course


def test_first_a_list_then_a_watch_from_where_the_list_was():
    course = a_course()
    assert course.step(0) == NEW
    course.paged("more")
    assert course.step(0) == List(limit=2, rest="more")
    assert listed(course).step(0) == Watch(version="7", seconds=300)
    course.seen("9")
    course.ended(300)
    assert course.step(300) == Watch(version="9", seconds=300)


def test_watches_are_spread():
    assert listed(a_course(ALWAYS)).step(0) == Watch(version="7", seconds=600)


def test_now_and_then_all_is_listed_though_nothing_is_amiss():
    course = listed(a_course())
    assert isinstance(course.step(3_599), Watch)
    assert course.step(3_600) == NEW


def test_what_has_expired_is_listed_anew():
    course = listed(a_course(ALWAYS))
    course.expired()
    assert (course.step(0), course.step(0)) == (Pause(seconds=1.0), NEW)


def test_a_list_that_expires_gets_on_in_larger_pages_until_it_is_done():
    course = a_course()
    for limit in (4, 8, 16):
        course.paged("more")
        course.expired()
        assert course.step(0) == List(limit=limit, rest="")
    for _ in range(20):
        course.paged("more")
        course.expired()
    assert course.step(0) == List(limit=4_000, rest="")
    listed(course).expired()
    assert course.step(0) == NEW


def test_trouble_waits_ever_longer_and_goes_on_from_where_it_was():
    course = listed(a_course())
    pauses = []
    for _ in range(2):
        course.failed()
        pauses.append(course.step(0))
        assert course.step(0) == Watch(version="7", seconds=300)
    assert pauses == [Pause(seconds=0.25), Pause(seconds=0.5)]
    course.failed()
    assert (course.step(0), course.step(0)) == (Pause(seconds=1.0), NEW)
    for _ in range(20):
        course.failed()
    assert course.step(0) == Pause(seconds=15.0)


def test_a_page_is_asked_for_again_and_the_others_are_kept():
    course = a_course()
    course.paged("more")
    for _ in range(5):
        course.failed()
        course.step(0)
    assert course.step(0) == List(limit=2, rest="more")


def test_who_says_when_to_come_again_is_heard():
    course = listed(a_course())
    course.failed(at_least=30)
    assert course.step(0) == Pause(seconds=30)


def test_who_says_to_come_again_in_a_day_is_asked_after_a_minute():
    course = a_course()
    listed(course)
    course.failed(at_least=86_400)
    assert course.step(0) == Pause(seconds=60)


def test_a_change_that_came_ends_the_trouble():
    course = listed(a_course())
    for _ in range(9):
        course.failed()
        course.seen("8")
    assert (course.step(0), course.step(0)) == (Pause(seconds=0.25), Watch(version="8", seconds=300))


def test_a_watch_that_is_ended_at_once_is_not_begun_at_once():
    course = listed(a_course())
    course.ended(0.1)
    assert course.step(0) == Pause(seconds=0.25)


def test_what_is_not_there_is_asked_for_anew_at_some_time():
    course = a_course(ALWAYS)
    course.paged("more")
    course.refused(60)
    assert (course.step(0), course.step(0)) == (Pause(seconds=75.0), NEW)


HAPPENS = st.sampled_from(["paged", "listed", "seen", "ended", "expired", "failed", "refused"])


@given(st.lists(HAPPENS, max_size=40))
def test_nothing_is_asked_without_a_pause_for_ever(happens):
    """Check that a pause follows each error, and that a watch starts at a received version."""
    course = a_course(ALWAYS)
    for what in happens:
        said = {"paged": ("t",), "listed": ("5", 0.0), "seen": ("6",), "ended": (0.0,), "refused": (60.0,)}
        getattr(course, what)(*said.get(what, ()))
        step = course.step(0)
        if what in ("ended", "expired", "failed", "refused"):
            assert isinstance(step, Pause)
            assert 0 < step.seconds <= 75
            step = course.step(0)
        assert isinstance(step, List) or (isinstance(step, Watch) and step.version in ("5", "6"))


@pytest.mark.parametrize("chance", [NEVER, ALWAYS])
def test_pauses_never_vanish(chance):
    course = listed(a_course(chance))
    course.failed()
    step = course.step(0)
    assert isinstance(step, Pause)
    assert step.seconds >= 0.25
