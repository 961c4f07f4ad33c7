"""Descriptors above 1023, which `select.select` does not accept."""

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from kfpytorch_common.polling import poll_readable


@pytest.fixture
def large_pipe() -> Iterator[tuple[int, int]]:
    """Yield a pipe whose reading end is above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    small, writer = os.pipe()
    reader = fcntl.fcntl(small, fcntl.F_DUPFD_CLOEXEC, 1100)
    os.close(small)
    yield reader, writer
    os.close(reader)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptor_above_1023_is_readable_with_data_and_at_its_end(large_pipe: tuple[int, int]) -> None:
    reader, writer = large_pipe
    assert poll_readable([reader], 0) == []
    os.write(writer, b"a")
    months = 3e6
    assert poll_readable([reader], months) == [reader]
    os.read(reader, 1)
    os.close(writer)
    assert poll_readable([reader], 8.0) == [reader]
