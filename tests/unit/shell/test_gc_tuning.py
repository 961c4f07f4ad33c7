import asyncio
import gc

import pytest

from backend_plugin.shell import gc_tuning


@pytest.fixture(autouse=True)
def as_before():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_objects_present_after_the_sync_are_frozen():
    # The interpreter may have frozen objects itself; Python 3.12 freezes a few hundred.
    at_first = gc.get_freeze_count()

    filled = asyncio.Event()
    looking = asyncio.create_task(gc_tuning.tune_collector(filled))
    await asyncio.sleep(0)
    before = gc.get_threshold(), gc.get_freeze_count()
    filled.set()
    await looking
    (often, *_), frozen = before
    # With a larger threshold, uncollected reference cycles would take too much memory.
    assert (700 < often < 100_000, gc.isenabled(), frozen) == (True, True, at_first)
    assert gc.get_freeze_count() > at_first + 1_000
