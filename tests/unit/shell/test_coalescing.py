"""Which answers are taken up together."""

import asyncio
from functools import wraps

import pytest

from backend_plugin.shell.coalescing import Coalescing

FOR_EVER = 1e12
MANY = 6


def on_a_loop(story):
    @wraps(story)
    def test(*said, **named):
        asyncio.run(story(*said, **named))

    return test


class Asked:
    """Questions under way, each answered with its number when the test says so."""

    def __init__(self, coalescing: Coalescing, number: int) -> None:
        self._among = coalescing
        self._answers = [asyncio.get_running_loop().create_future() for _ in range(number)]
        self.tasks = [asyncio.ensure_future(self._ask(answer)) for answer in self._answers]

    async def _ask(self, answer: "asyncio.Future[int]") -> int:
        with self._among.question() as question:
            said = await answer
        await question.turn()
        return said

    async def answer(self, *numbers: int) -> None:
        """These have their answers, and all that follows at once has happened."""
        for number in numbers:
            self._answers[number].set_result(number)
        await turns()

    async def refuse(self, number: int) -> None:
        """This one has none, and all that follows at once has happened."""
        self._answers[number].set_exception(ConnectionError("reset"))
        await turns()

    @property
    def told(self) -> list[int]:
        """Those who have gone on."""
        return [number for number, task in enumerate(self.tasks) if task.done()]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def asked(coalescing: Coalescing, number: int = MANY) -> Asked:
    made = Asked(coalescing, number)
    await turns()
    return made


@on_a_loop
async def test_answers_are_taken_up_together_once_all_are_there():
    questions = await asked(Coalescing(share=FOR_EVER, longest=FOR_EVER))
    await questions.answer(0, 1)
    await questions.answer(2, 3, 4)
    assert questions.told == []
    await questions.answer(5)
    assert await asyncio.gather(*questions.tasks) == [0, 1, 2, 3, 4, 5]


@on_a_loop
async def test_an_answer_does_not_wait_for_those_that_do_not_come():
    questions = await asked(Coalescing(share=FOR_EVER, longest=0.001))
    await questions.answer(2)
    assert await questions.tasks[2] == 2
    assert questions.told == [2]
    await questions.answer(0, 1, 3, 4, 5)
    assert await asyncio.gather(*questions.tasks) == [0, 1, 2, 3, 4, 5]


@on_a_loop
async def test_an_answer_waits_no_longer_than_a_share_of_its_own_time():
    questions = await asked(Coalescing(share=0, longest=FOR_EVER))
    await questions.answer(0)
    assert await questions.tasks[0] == 0


@on_a_loop
async def test_who_was_answered_quickly_does_not_wait_as_long_as_who_was_not():
    coalescing = Coalescing(share=1, longest=FOR_EVER)
    under_way = [coalescing.question().__enter__() for _ in range(MANY)]
    slow = asyncio.ensure_future(coalescing.turn(took=FOR_EVER))
    await turns()
    quick = asyncio.ensure_future(coalescing.turn(took=0.001))
    await asyncio.wait_for(asyncio.gather(slow, quick), 10)
    assert len(under_way) == MANY


@on_a_loop
async def test_who_was_answered_slowly_keeps_nobody_waiting_who_was_not():
    coalescing = Coalescing(share=1, longest=FOR_EVER)
    under_way = [coalescing.question().__enter__() for _ in range(MANY)]
    quick = asyncio.ensure_future(coalescing.turn(took=0.001))
    await turns()
    slow = asyncio.ensure_future(coalescing.turn(took=FOR_EVER))
    await asyncio.wait_for(asyncio.gather(slow, quick), 10)
    assert len(under_way) == MANY


@pytest.mark.parametrize("number", [1, 2, 4])
@on_a_loop
async def test_where_few_are_asked_each_goes_on_at_once(number):
    questions = await asked(Coalescing(share=FOR_EVER, longest=FOR_EVER), number)
    await questions.answer(0)
    assert questions.told == [0]


@on_a_loop
async def test_five_are_not_few():
    questions = await asked(Coalescing(share=FOR_EVER, longest=FOR_EVER), 5)
    await questions.answer(0)
    assert questions.told == []
    await questions.answer(1, 2, 3, 4)
    assert questions.told == [0, 1, 2, 3, 4]


@on_a_loop
async def test_as_a_server_has_it_an_answer_waits_less_than_a_second():
    questions = await asked(Coalescing())
    await asyncio.sleep(0.02)
    await questions.answer(0)
    assert await asyncio.wait_for(questions.tasks[0], 1) == 0
    await questions.answer(1, 2, 3, 4, 5)


@on_a_loop
async def test_who_has_no_answer_is_told_at_once_and_keeps_nobody_waiting():
    questions = await asked(Coalescing(share=FOR_EVER, longest=FOR_EVER))
    await questions.answer(0, 1, 2, 3, 4)
    await questions.refuse(5)
    assert questions.told == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ConnectionError):
        await questions.tasks[5]


@on_a_loop
async def test_who_gives_up_leaves_the_others_waiting_and_is_not_waited_for():
    questions = await asked(Coalescing(share=FOR_EVER, longest=FOR_EVER))
    await questions.answer(0, 1)
    for number in (0, 2):
        questions.tasks[number].cancel()
    await turns()
    assert questions.told == [0, 2]
    await questions.answer(3, 4, 5)
    assert [await questions.tasks[number] for number in (1, 3, 4, 5)] == [1, 3, 4, 5]


@on_a_loop
async def test_what_comes_later_waits_for_its_own():
    coalescing = Coalescing(share=FOR_EVER, longest=0.05)
    first = await asked(coalescing)
    await first.answer(*range(MANY))
    assert first.told == [*range(MANY)]
    later = asyncio.get_running_loop().time() + 0.03
    await asyncio.sleep(0.03)
    second = await asked(coalescing)
    await second.answer(0)
    await asyncio.sleep(0.03)  # The time of the first ones is over.
    assert second.told == [] or asyncio.get_running_loop().time() > later + 0.05
    await second.answer(*range(1, MANY))
    assert second.told == [*range(MANY)]
