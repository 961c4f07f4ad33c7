"""The work queue: each queued key is processed once, in order, and again when it is due."""

import asyncio
from datetime import timedelta

from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.store import system_clock
from backend_plugin.embedded.workqueue import FAILED, WorkQueue, compute_retry_delay

ONE, TWO = Key("PyTorchJob", "a", "one"), Key("PyTorchJob", "a", "two")


class Reconciler:
    """A function that returns the given results in order, then None. It sets `done` after the last one."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.keys = []
        self.done = asyncio.Event()
        self.work = WorkQueue(self, system_clock)

    def __call__(self, key):
        self.keys.append(key)
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_key_that_is_added_twice_is_processed_once():
    reconciled = Reconciler()
    for key in (ONE, TWO, ONE):
        reconciled.work.add(key)
    await settled()
    assert reconciled.keys == [ONE, TWO]


async def test_key_that_is_added_during_its_processing_is_processed_again():
    keys = []

    def add_again(key):
        keys.append(key)
        if len(keys) < 3:
            work.add(key)

    work = WorkQueue(add_again, system_clock)
    work.add(ONE)
    await settled()
    assert keys == [ONE, ONE, ONE]


async def test_failed_key_is_retried_until_it_succeeds_and_a_due_key_processed_again():
    for answers in ((FAILED, FAILED, None), (system_clock() + timedelta(seconds=0.01), None)):
        reconciled = Reconciler(*answers)
        reconciled.work.add(ONE)
        await reconciled.done.wait()
        await asyncio.sleep(0.05)
        assert reconciled.keys == [ONE] * len(answers)


async def test_closed_queue_processes_nothing():
    reconciled = Reconciler(system_clock() + timedelta(seconds=0.01), FAILED)
    reconciled.work.add(ONE)
    reconciled.work.add(TWO)
    await settled()
    reconciled.work.close()
    before = [*reconciled.keys]  # On a busy machine, a retry may be due already.
    reconciled.work.add(ONE)
    await asyncio.sleep(0.05)
    assert (before[:2], reconciled.keys) == ([ONE, TWO], before)


async def test_unexpected_exception_is_reported_and_its_key_retried_after_the_others():
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    reconciled = Reconciler(ZeroDivisionError(), None, None)
    reconciled.work.add(ONE)
    reconciled.work.add(TWO)
    await reconciled.done.wait()
    assert reconciled.keys == [ONE, TWO, ONE]
    assert [type(each["exception"]) for each in reported] == [ZeroDivisionError]


def test_retry_delay_doubles_up_to_a_maximum():
    expected = {1: 0.005, 2: 0.01, 8: 0.64, 20: 60.0, 100_000: 60.0}
    assert {failures: compute_retry_delay(failures) for failures in expected} == expected
