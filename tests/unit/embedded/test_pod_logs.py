"""Container output, from the pipe of a container to the client that reads the log."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.embedded import pod_logs
from backend_plugin.embedded.pod_logs import ContainerLog
from backend_plugin.embedded.pod_status import ContainerState, PodState
from backend_plugin.embedded.shim import layout, logfile
from backend_plugin.embedded.shim.logfile import LogFile
from backend_plugin.shell.cluster import LogRequest

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] ")


class Written:
    """A pod and the logs of its container, written as a shim does. The test sets the state of the pod."""

    def __init__(self, path, limit=1 << 20, kept=5):
        self.path, self.limit, self.kept = path, limit, kept
        self.logs = path / layout.LOGS / "c"
        self.container = ContainerState(kind="app")
        self.later = []
        """Functions that run during `wait_for_change`, one per call."""

    def run(self, number, *outputs):
        log = LogFile(str(self.logs), number, self.limit, self.kept)
        for stream, data in outputs:
            log.write(stream, data)
        log.close()
        self.container = ContainerState(kind="app", running_since=1, restarts=number)

    def read_state(self):
        return PodState(since=0, containers={"c": self.container})

    async def wait_for_change(self, _):
        if not self.later:
            return False
        self.later.pop(0)()
        return True

    def stop_waiting(self, _):
        self.later = None

    def read(self, **request):
        async def lines():
            wanted = LogRequest(container="c", **request)
            return [line.text async for line in pod_logs.read_lines(self, self, wanted)]

        return asyncio.run(lines())


def test_current_and_previous_run_are_kept_while_an_old_reader_continues(written):
    written.limit = 60
    written.run(0, (b"stdout", b"a\n"), (b"stdout", b"b\n"))

    def again(number):
        logfile.remove_old_logs(str(written.logs), number - 1)
        written.run(number, (b"stdout", b"run %d\n" % number))

    written.later = [lambda: [again(number) for number in (1, 2, 3)], lambda: again(4)]
    assert written.read(follow=True) == ["a", "b", "run 2", "run 3", "run 4"]
    assert sorted(path.name for path in written.logs.iterdir()) == ["3.0.log", "4.0.log"]


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path)


async def test_lines_are_written_in_cri_format(written):
    written.run(0, (b"stdout", b"one\ntwo\n"), (b"stderr", b"three\n"))
    text = (written.logs / "0.0.log").read_text()
    expected = ["stdout one", "stdout two", "stderr three"]
    assert [LINE.sub(r"\1 ", line) for line in text.splitlines()] == expected
    first, *_ = [line async for line in pod_logs.read_lines(written, written, LogRequest(container="c"))]
    assert LINE.match(f"{first.time} stdout F ")


def test_whole_lines_of_each_stream_are_read(written):
    written.run(0, (b"stdout", b"he"), (b"stderr", b"no\n"), (b"stdout", b"llo\n"))
    assert written.read() == ["no", "hello"]


@pytest.mark.parametrize(
    ("line", "cut", "read"),
    [(b"torn", 1, "torn"), (b"x" * 20_000, 0, "x" * 16_384), (b"x" * 20_000, 1, "x" * 16_384)],
    ids=["no line end", "no last part", "no end of a part"],
)
def test_torn_last_line_does_not_join_the_next_run(written, line, cut, read):
    written.run(0, (b"stdout", b"one\n" + line + b"\n"))
    log = written.logs / "0.0.log"
    data = b"".join(log.read_bytes().splitlines(keepends=True)[:2])
    log.write_bytes(data[: len(data) - cut])
    written.later = [lambda: written.run(1, (b"stdout", b"two\n"))]
    assert written.read(follow=True) == ["one", read, "two"]


def test_very_long_line_is_stored_in_parts_and_read_as_one(written):
    line = "x" * 50_000
    written.run(0, (b"stdout", line[:20_000].encode()), (b"stdout", line[20_000:].encode() + b"\nend\n"))
    assert written.read() == [line, "end"]
    assert written.read(tail=2) == [line, "end"]
    assert max(map(len, (written.logs / "0.0.log").read_text().splitlines())) < 17_000


@given(
    chunks=st.lists(st.binary(max_size=12).map(lambda each: each.replace(b"\0", b"\n")), max_size=8),
    tail=st.integers(0, 5),
)
def test_written_output_is_read_unchanged(tmp_path_factory, chunks, tail):
    written = Written(tmp_path_factory.mktemp("log"), limit=60, kept=1000)
    written.run(0, *((b"stdout", chunk) for chunk in chunks))
    text = b"".join(chunks)
    lines = [line.decode(errors="replace") for line in text.removesuffix(b"\n").split(b"\n")] if text else []
    assert written.read() == lines
    assert written.read(tail=tail) == (lines[-tail:] if tail else [])


def test_verbose_container_does_not_fill_the_disk(tmp_path):
    written = Written(tmp_path, limit=1_000, kept=3)
    written.run(0, *((b"stdout", b"line %03d\n" % number) for number in range(300)))
    files = sorted(written.logs.iterdir())
    assert len(files) == 3
    assert sum(path.stat().st_size for path in files) <= 3_000
    lines = written.read()
    assert lines == [f"line {number:03}" for number in range(300 - len(lines), 300)]


def test_following_waits_for_the_start_of_the_container(written):
    written.later = [lambda: None, lambda: written.run(0, (b"stdout", b"one\n"))]
    assert written.read(follow=True, tail=3) == ["one"]


def test_slow_reader_continues_with_the_remaining_lines(tmp_path):
    log = LogFile(str(tmp_path), 0, 200, 2)
    log.write(b"stdout", b"first\n")
    reader = ContainerLog(tmp_path)
    assert [line.text for lines in reader.iter_batches(0) for line in lines] == ["first"]
    for number in range(40):
        log.write(b"stdout", b"%d\n" % number)
    log.close()
    rest = [line.text for lines in reader.iter_batches(0) for line in lines]
    reader.close()
    assert rest[-1] == "39"
    assert rest == [str(number) for number in range(40) if str(number) in rest]


def test_last_log_lines_are_limited_in_number_and_size(tmp_path):
    log = LogFile(str(tmp_path), 0, 4_000, 5)
    for number in range(200):
        log.write(b"stderr", b"%d\n" % number)
    assert log.read_last_lines().splitlines() == [str(number) for number in range(120, 200)]
    log.write(b"stderr", b"x" * 5_000 + b"\n")
    assert log.read_last_lines() == "x" * 2048
    log.close()
