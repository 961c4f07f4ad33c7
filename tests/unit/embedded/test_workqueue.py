"""The work queue: each queued key is processed once, in order, and again when it is due."""

import asyncio
from datetime import timedelta

import pytest

from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.store import system_clock
from backend_plugin.embedded.workqueue import FAILED, RetryBackoff, WorkQueue

ONE, TWO = Key("PyTorchJob", "a", "one"), Key("PyTorchJob", "a", "two")


class Looking:
    """A function that returns the given results in order, then None. It sets `done` after the last one."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.seen = []
        self.done = asyncio.Event()

    def __call__(self, key):
        self.seen.append(key)
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def work(self, backoff=None):
        return WorkQueue(self, backoff or RetryBackoff(first=0.001), system_clock)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_key_that_is_added_twice_is_looked_at_once():
    looking = Looking()
    work = looking.work()
    for key in (ONE, TWO, ONE):
        work.add(key)
    await settled()
    result = looking.seen
    assert result == [ONE, TWO]


async def test_a_key_that_is_added_while_it_is_looked_at_is_looked_at_again():
    seen = []

    def add_again(key):
        seen.append(key)
        if len(seen) < 3:
            work.add(key)

    work = WorkQueue(add_again, RetryBackoff(), system_clock)
    work.add(ONE)
    await settled()
    assert seen == [ONE, ONE, ONE]


async def test_a_failure_is_tried_again_until_it_goes_well():
    looking = Looking(FAILED, FAILED, None)
    looking.work().add(ONE)
    await looking.done.wait()
    await asyncio.sleep(0.05)
    result = looking.seen
    assert result == [ONE, ONE, ONE]


async def test_what_is_to_be_looked_at_later_is():
    looking = Looking(system_clock() + timedelta(seconds=0.01), None)
    looking.work().add(ONE)
    await looking.done.wait()
    result = looking.seen
    assert result == [ONE, ONE]


async def test_after_the_end_nothing_is_looked_at():
    looking = Looking(system_clock() + timedelta(seconds=0.01), FAILED)
    work = looking.work()
    work.add(ONE)
    work.add(TWO)
    await settled()
    work.close()
    work.add(ONE)
    await asyncio.sleep(0.05)
    result = looking.seen
    assert result == [ONE, TWO]


async def test_after_a_mistake_the_others_are_looked_at_and_then_the_same_again():
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    looking = Looking(ZeroDivisionError(), None, None)
    work = looking.work()
    work.add(ONE)
    work.add(TWO)
    await looking.done.wait()
    result = looking.seen, [type(each["exception"]) for each in reported]
    assert result == ([ONE, TWO, ONE], [ZeroDivisionError])


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.005), (2, 0.01), (8, 0.64), (20, 60.0), (100_000, 60.0)]
)
def test_every_failure_doubles_the_wait_up_to_an_end(failures, seconds):
    assert RetryBackoff().compute_delay(failures) == seconds
