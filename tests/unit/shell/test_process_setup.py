"""Tests of what a server process sets up: logs, traces, memory, and tasks that run and end together."""

import asyncio
import gc
import io
import json
import logging
import platform
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from backend_plugin.core import printable
from backend_plugin.shell import logging_setup, memory_tuning, tracing
from backend_plugin.shell.job_watch import iter_batches
from backend_plugin.shell.together import run_until_first_exit

pytestmark = pytest.mark.usefixtures("restored_logging")
LOG = logging.getLogger("backend_plugin.test")
EVIL = "a\x1b[2Jb\x9bc\rd \u202egnp.exe\u202c \u2028next\x00"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
MANY = 200


class Terminal(io.StringIO):
    def isatty(self):
        return True


def set_up(form=None, stream=None):
    stream = stream or io.StringIO()
    # Pytest's handlers stay usable after `force` removes them.
    logging_setup.configure_logging("info", form, stream)
    return stream


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_log_fields_apply_within_the_context_and_in_its_tasks():
    stream = set_up()

    async def log_lines():
        with logging_setup.add_log_fields(execution="f1"):
            with logging_setup.add_log_fields(job="j1"):
                inner = asyncio.create_task(elsewhere())
            LOG.info("outer", extra={"execution": "other"})
            LOG.info("outer")
        await inner
        LOG.info("after")

    async def elsewhere():
        LOG.info("inner")

    asyncio.run(log_lines())
    records = [line for line in lines(stream) if line["logger"] == LOG.name]
    assert [(line["message"], line.get("execution"), line.get("job")) for line in records] == [
        ("outer", "other", None),
        ("outer", "f1", None),
        ("inner", "f1", "j1"),
        ("after", None, None),
    ]


def test_text_log_line_is_short_and_contains_the_fields_and_a_terminal_has_colours():
    stream = set_up("text")
    LOG.debug("suppressed by the level")
    LOG.info("started", extra={"execution": "f1", "project": "p"})
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    started  execution=f1 project=p\n", stream.getvalue())
    stream = set_up(stream=Terminal())
    LOG.error("broken")
    assert re.fullmatch(r"\d\d:\d\d:\d\d \x1b\[31mERROR  \x1b\[0m broken\n", stream.getvalue())


@pytest.mark.parametrize("form", logging_setup.FORMS)
def test_control_characters_in_names_are_escaped_and_a_traceback_is_logged(form: str) -> None:
    stream = set_up(form)
    LOG.info("from %s", EVIL, extra={"job": f"x\n{EVIL}"})
    written = stream.getvalue()
    assert len(written.splitlines()) == 1
    assert printable.escape(written) == written
    if form == "json":
        assert json.loads(written)["message"] == f"from {EVIL}"
    else:
        assert written.count(printable.escape(EVIL)) == 2
    try:
        int("deep")
    except ValueError:
        LOG.exception("it broke")
    assert "it broke" in stream.getvalue()
    assert "ValueError: invalid literal" in stream.getvalue()


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://collector:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({ENDPOINT: "http://collector:4317", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://collector:4317", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_tracing_is_requested_by_the_opentelemetry_variables(environ: dict[str, str], asked: bool) -> None:
    assert tracing.is_requested(environ) is asked


def test_opentelemetry_is_imported_only_if_tracing_is_requested():
    program = (
        "import sys; from backend_plugin.shell import tracing\n"
        "with tracing.open_tracing({}) as nothing:\n"
        "    print(nothing, any('opentelemetry' in m for m in sys.modules))\n"
        # As without the package.
        "sys.modules['opentelemetry.exporter'] = None\n"
        "try:\n"
        f"    with tracing.open_tracing({{{ENDPOINT!r}: 'http://x'}}): pass\n"
        "except tracing.TracingUnavailable as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    imported, message = done.stdout.splitlines()
    assert imported == "() False"
    assert 'is not installed; run: pip install "flytekitplugins-kfpytorch[backend,otel]"' in message


PROGRAM = """
import ctypes
import resource
import sys

import psutil

from backend_plugin.shell.memory_tuning import limit_kept_memory

print(limit_kept_memory({each: "1" for each in sys.argv[1:]}))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]


def filled(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block


before = psutil.Process().memory_info().rss
libc.free(filled(30 * 2**20))
blocks = [(filled(2**20), libc.malloc(100_000)) for _ in range(64)]
for block, _ in blocks:
    libc.free(block)
print(psutil.Process().memory_info().rss - before)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    libc.free(filled(256 * 2**10 + 64))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps memory in this way")
@pytest.mark.parametrize(("variables", "limited"), [((), True), (("MALLOC_ARENA_MAX",), False)])
def test_freed_memory_is_returned_unless_the_environment_configures_the_allocator(variables, limited) -> None:
    command = [sys.executable, "-c", PROGRAM, *variables]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert output[0] == str(limited)
    assert (int(output[1]) < 16 * 2**20) is limited
    # The buffer for a read of a TLS connection stays mapped: each of its 65 pages is mapped once.
    assert int(output[2]) < 1_000


@pytest.fixture
def gc_as_before():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_objects_present_after_the_sync_are_frozen(gc_as_before):
    # The interpreter may have frozen objects itself; Python 3.12 freezes a few hundred.
    at_first = gc.get_freeze_count()
    filled = asyncio.Event()
    tuning = asyncio.create_task(memory_tuning.tune_collector(filled))
    await asyncio.sleep(0)
    (often, *_), frozen = gc.get_threshold(), gc.get_freeze_count()
    filled.set()
    await tuning
    # With a larger threshold, uncollected reference cycles would take too much memory.
    assert (700 < often < 100_000, gc.isenabled(), frozen) == (True, True, at_first)
    assert gc.get_freeze_count() > at_first + 1_000


async def slow_to_end(ended, name):
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append(name)


async def cancel_after_start(life):
    await asyncio.sleep(0.01)
    life.cancel()
    await asyncio.wait([life])
    assert life.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_group_waits_for_all_tasks():
    ended = []
    group = run_until_first_exit(slow_to_end(ended, "a"), slow_to_end(ended, "b"))
    await cancel_after_start(asyncio.create_task(group))
    assert sorted(ended) == ["a", "b"]


async def test_first_failure_ends_all_tasks():
    ended = []

    async def fails():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until_first_exit(fails(), slow_to_end(ended, "b"))
    assert ended == ["b"]


async def swallow_a_cancellation():
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_task_that_swallows_a_cancellation_is_cancelled_again():
    await cancel_after_start(asyncio.create_task(run_until_first_exit(swallow_a_cancellation())))
    # Both groups cancel again after the same interval, the outer one the inner one, which then still waits.
    group = run_until_first_exit(run_until_first_exit(swallow_a_cancellation()))
    await cancel_after_start(asyncio.create_task(group))


async def test_streams_of_all_jobs_encode_one_batch_between_other_calls():
    happened = []
    received = []

    def encode(number):
        happened.append("told")
        return number

    async def watcher(turn):
        async for part in iter_batches(turn, range(MANY), encode):
            received.extend(part)

    async def calls():
        while True:
            happened.append("call")
            await asyncio.sleep(0)

    turn = asyncio.Lock()
    calling = asyncio.create_task(calls())
    await asyncio.gather(*(watcher(turn) for _ in range(8)))
    calling.cancel()
    assert sorted(received) == sorted([*range(MANY)] * 8)
    assert max([len(part.split()) for part in " ".join(happened).split("call")]) <= 20
