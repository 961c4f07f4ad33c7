"""The next step of a reflector, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.kube.list_watch import ListStep, ListWatch, PauseStep, WatchStep

NEVER, ALWAYS = (lambda: 0.0), (lambda: 1.0)
NEW = ListStep(rest="")


def a_course(chance=NEVER):
    return ListWatch(chance=chance)


def listed(course, version="7", now=0.0):
    course.on_list_end(version, now)
    return course


def test_list_is_followed_by_a_watch_from_its_version():
    course = a_course()
    assert course.decide_next_step(0) == NEW
    course.on_page("more")
    assert course.decide_next_step(0) == ListStep(rest="more")
    assert listed(course).decide_next_step(0) == WatchStep(version="7", seconds=300)
    course.on_progress("9")
    course.on_watch_end(300)
    assert course.decide_next_step(300) == WatchStep(version="9", seconds=300)


def test_relist_follows_after_an_hour_without_errors():
    course = listed(a_course())
    assert isinstance(course.decide_next_step(3_599), WatchStep)
    assert course.decide_next_step(3_600) == NEW
    # The durations of watches are random.
    assert listed(a_course(ALWAYS)).decide_next_step(0) == WatchStep(version="7", seconds=600)


def test_failures_increase_the_pause_and_keep_the_version():
    course = listed(a_course())
    pauses = []
    for _ in range(2):
        course.on_failure()
        pauses.append(course.decide_next_step(0))
        assert course.decide_next_step(0) == WatchStep(version="7", seconds=300)
    assert pauses == [PauseStep(seconds=0.25), PauseStep(seconds=0.5)]
    course.on_failure()
    assert (course.decide_next_step(0), course.decide_next_step(0)) == (PauseStep(seconds=1.0), NEW)
    for _ in range(20):
        course.on_failure()
    assert course.decide_next_step(0) == PauseStep(seconds=15.0)


def test_failed_page_is_requested_again_and_earlier_pages_kept():
    course = a_course()
    course.on_page("more")
    for _ in range(5):
        course.on_failure()
        course.decide_next_step(0)
    assert course.decide_next_step(0) == ListStep(rest="more")


@pytest.mark.parametrize(("delay", "pause"), [(30, 30), (86_400, 60)])
def test_retry_delay_of_the_server_is_respected_up_to_a_minute(delay, pause):
    course = listed(a_course())
    course.on_failure(at_least=delay)
    assert course.decide_next_step(0) == PauseStep(seconds=pause)


def test_received_change_resets_the_pause():
    course = listed(a_course())
    for _ in range(9):
        course.on_failure()
        course.on_progress("8")
    assert course.decide_next_step(0) == PauseStep(seconds=0.25)
    assert course.decide_next_step(0) == WatchStep(version="8", seconds=300)
    course.on_watch_end(0.1)  # A watch that ends immediately is restarted after a pause.
    assert course.decide_next_step(0) == PauseStep(seconds=0.25)


def test_expired_version_or_unavailable_resource_causes_a_relist_after_a_pause():
    expired, unavailable = listed(a_course(ALWAYS)), a_course(ALWAYS)
    expired.on_expired()
    unavailable.on_page("more")
    unavailable.on_permanent_error(60)
    for course, seconds in ((expired, 1.0), (unavailable, 75.0)):
        assert course.decide_next_step(0) == PauseStep(seconds=seconds)
        assert course.decide_next_step(0) == NEW


ARGUMENTS = {
    "on_page": ("t",),
    "on_list_end": ("5", 0.0),
    "on_progress": ("6",),
    "on_watch_end": (0.0,),
    "on_expired": (),
    "on_failure": (),
    "on_permanent_error": (60.0,),
}


@given(st.lists(st.sampled_from([*ARGUMENTS]), max_size=40))
def test_each_error_is_followed_by_a_pause(happens):
    course = a_course(ALWAYS)
    for what in happens:
        getattr(course, what)(*ARGUMENTS[what])
        step = course.decide_next_step(0)
        if what in ("on_watch_end", "on_expired", "on_failure", "on_permanent_error"):
            assert isinstance(step, PauseStep)
            assert 0 < step.seconds <= 75
            step = course.decide_next_step(0)
        assert isinstance(step, ListStep) or (isinstance(step, WatchStep) and step.version in ("5", "6"))
