"""Input files are read completely or rejected, and cannot crash the process."""

import json
import os
import re
from datetime import date
from pathlib import Path

import pytest
import yaml

from backend_plugin.shell import bounded_read, yaml_loader

FACE = "\N{GRINNING FACE}"
DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"a": FACE}).encode(),
        f"a: {FACE}".encode(),
        b'a: "\\U0001F600"',
        f"\ufeffa: {FACE}".encode(),
        f"a: {FACE}".encode("utf-16"),
        f"a: {FACE}\r\n".encode(),
    ],
    ids=["json", "yaml", "escaped", "byte order mark", "utf-16", "windows"],
)
def test_astral_character_is_read_in_each_encoding(text: bytes) -> None:
    assert yaml_loader.load_documents(text) == [{"a": FACE}]


@pytest.mark.parametrize("text", [b'{"a": "\\ud83d"}', b'a: "\\ude00"', b'? "\\ud83d"\n: 1'])
def test_lone_surrogate_is_rejected_with_its_position(text: bytes) -> None:
    with pytest.raises(yaml.YAMLError, match="line 1, column"):
        yaml_loader.load_documents(text)


@pytest.mark.parametrize(
    "text",
    [b"[" * DEEP, b'{"a":' * DEEP, b"- " * DEEP, b"? " * DEEP, b"#\n" + b"[" * DEEP],
    ids=["list", "object", "items", "keys", "flow list"],
)
def test_unlimited_nesting_is_rejected(text: bytes) -> None:
    with pytest.raises(RecursionError):
        yaml_loader.load_documents(text)


def test_long_string_and_wide_list_do_not_count_as_nesting() -> None:
    text, wide = "x" * 2_000, [[]] * 1_000
    assert yaml_loader.load_documents(f"a: '{text}'\nb: {wide}".encode()) == [{"a": text, "b": wide}]


def test_timestamps_stay_text_if_requested() -> None:
    text = b"a: 2026-01-01\n---\n{b: 2026-01-02}"
    assert yaml_loader.load_documents(text) == [{"a": date(2026, 1, 1)}, {"b": date(2026, 1, 2)}]
    assert yaml_loader.load_documents(text, times=False) == [{"a": "2026-01-01"}, {"b": "2026-01-02"}]


@pytest.mark.parametrize(
    "text",
    [
        *("plugins: {}\nplugins: {}", "a: {b: 1, b: 2}", "- {a: 1}\n- x: {k: [{y: 1, y: 1}]}"),
        *('"a": 1\na: 2', "&x a: 1\na: 2"),
    ],
)
def test_duplicate_key_is_rejected_with_its_position(text):
    message = r"the key '\w+' is duplicate; remove one of the two\s+at line \d, column \d"
    with pytest.raises(yaml.YAMLError, match=message):
        yaml_loader.load_documents(text.encode())


def test_keys_of_other_types_and_merged_keys_are_no_duplicates():
    text = 'base: &b {a: 1, c: 2}\nown: {<<: *b, a: 3}\n1: x\n"1": y\n---\nbase: 1\n'
    first, second = yaml_loader.load_documents(text.encode())
    assert first == {"base": {"a": 1, "c": 2}, "own": {"a": 3, "c": 2}, 1: "x", "1": "y"}
    assert second == {"base": 1}


def test_file_is_read_completely_unless_it_is_oversized_or_irregular_and_closed(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "whole")
    assert bounded_read.read_file(tmp_path / "link", 4) == b"1234"
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
