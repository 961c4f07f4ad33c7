"""Tests of bounded reads, also of files that are not regular."""

import os
import re
from pathlib import Path

import pytest

from backend_plugin.shell import bounded_read


def test_file_is_read_completely_also_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert bounded_read.read_file(tmp_path / "link", 4) == b"1234"


def test_oversized_or_irregular_file_is_rejected_and_closed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    before = os.open(tmp_path, os.O_RDONLY)
    os.close(before)
    for path, message in (
        (tmp_path / "file", "is larger than the limit of 4 bytes"),
        (Path("/dev/zero"), "is not a regular file"),
        (tmp_path / "pipe", "is not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file or directory"),
    ):
        with pytest.raises(OSError, match=re.escape(message)):
            bounded_read.read_file(path, 4)
    after = os.open(tmp_path, os.O_RDONLY)  # The lowest free descriptor.
    os.close(after)
    assert after == before
