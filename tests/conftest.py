"""Time limits, test selection and hypothesis profiles for all tests."""

import asyncio
import inspect
import logging
import os
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# gRPC's handler for a fork may wait forever for its own threads. No test uses gRPC in a forked process.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Tests do not assert durations, because these depend on the load of the machine.
# `make test` runs a small number of generated cases, and `make soak` a large one.
settings.register_profile(
    "calm", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("calm"), max_examples=1_000)
settings.load_profile("calm")

UNIT = Path(__file__).parent / "unit"
# A unit test takes less than a second. The margin is for generated cases on a busy machine with two cores.
UNIT_SECONDS = 90
SOAK_SECONDS = 1200  # The soak profile runs 40 times as many cases.


def pytest_addoption(parser):
    parser.addoption("--share", default="1/1", metavar="N/M", help="every Mth selected test, from the Nth on")


def pytest_configure(config):
    if config.option.markexpr != "gpu":
        # The number of local ranks depends on the GPUs, and tests expect the same ranks on every machine.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    is_soak = config.getoption("--hypothesis-profile") == "soak"
    for item in items:
        if item.get_closest_marker("timeout") is not None:
            continue
        if is_soak:
            item.add_marker(pytest.mark.timeout(SOAK_SECONDS))
        elif UNIT in item.path.parents:
            item.add_marker(pytest.mark.timeout(UNIT_SECONDS))
    if config.getoption("lf", False):  # They come from one share, and would be split again.
        return
    first, of = map(int, config.getoption("--share").split("/"))
    left = [item for number, item in enumerate(items) if number % of != first - 1]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = items[first - 1 :: of]


@pytest.fixture
def restored_logging():
    """Restore the handlers and the level that a server in this process replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def pytest_runtest_setup(item):
    if sys.platform != "linux" and item.get_closest_marker("linux") is not None:
        pytest.skip("not run: it needs Linux")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function in a new event loop, and enter its asynchronous fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def run():
        values = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
        async with AsyncExitStack() as stack:
            for name, value in values.items():
                if isinstance(value, AbstractAsyncContextManager):
                    values[name] = await stack.enter_async_context(value)
            await pyfuncitem.obj(**values)

    asyncio.run(run())
    return True
