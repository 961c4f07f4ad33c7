import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfpytorch_common.output_lines import LineBuffer, TerminalLines, format_plain, with_prefix

PIECES = (
    *(b"\n", b"\r", b"\r\n", b"\x1b", b"[", b"\x1b[31m", b"0;1"),
    *(b"K", b"]", b"\x07", b"word", b" 50%|", b"\xff\xc3"),
)
TEXTS = st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
WHOLE = TEXTS.map(lambda text: text + b"\n")
PREFIX = b"[r0] "
MIB = 1 << 20


@st.composite
def cut(draw: st.DrawFn) -> list[bytes]:
    """Draw a text in pieces."""
    text = draw(TEXTS)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def collected(lines: LineBuffer, chunks: list[bytes]) -> list[bytes]:
    return [*(lines.feed(chunk) for chunk in chunks), lines.flush()]


@given(cut())
def test_line_is_returned_as_soon_as_it_is_whole_or_at_the_end(chunks: list[bytes]) -> None:
    lines, fed, given_out = LineBuffer(), b"", b""
    for chunk in chunks:
        fed += chunk
        given_out += lines.feed(chunk)
        assert given_out == fed[: fed.rfind(b"\n") + 1]
    rest = fed[len(given_out) :]
    assert lines.flush() == (rest + b"\n" if rest else b"")


def test_remaining_partial_line_is_returned_once() -> None:
    lines = LineBuffer()
    assert (lines.feed(b"half"), lines.flush(), lines.flush()) == (b"", b"half\n", b"")
    assert lines.feed(b"new\n") == b"new\n"


@pytest.mark.parametrize("chunk", [1 << 14, MIB, 17 * MIB], ids=["16 KiB", "1 MiB", "at once"])
def test_line_without_end_is_returned_in_pieces_of_16_mib(chunk: int) -> None:
    text = bytes(range(65, 91)) * (40 * MIB // 26)
    out = collected(LineBuffer(), [text[start : start + chunk] for start in range(0, len(text), chunk)])
    assert b"".join(out).replace(b"\n", b"") == text
    assert max(len(piece) for piece in out) <= 16 * MIB + chunk + 1


def test_line_of_16_mib_stays_whole() -> None:
    line = b"x" * (16 * MIB)
    assert collected(LineBuffer(), [line, b"\n", b"next\n"]) == [b"", line + b"\n", b"next\n", b""]


@given(WHOLE | st.just(b""))
def test_each_line_gets_the_prefix(lines: bytes) -> None:
    assert with_prefix(lines, PREFIX) == b"".join(PREFIX + line + b"\n" for line in lines.split(b"\n")[:-1])


@given(WHOLE.filter(lambda text: not {0x1B, 0x0D} & set(text)))
def test_plain_lines_stay_unchanged(lines: bytes) -> None:
    assert format_plain(lines) == lines


@given(WHOLE)
@example(b"\x1b]\n\n\x07\n")
def test_plain_format_keeps_the_line_count_and_removes_redrawn_lines(lines: bytes) -> None:
    assert (format_plain(lines).count(b"\n"), b"\r" in format_plain(lines)) == (lines.count(b"\n"), False)


def test_plain_format_keeps_the_last_visible_text() -> None:
    expected = {
        b"\x1b[1;31merror\x1b[0m: no\n": b"error: no\n",
        b"\x1b[?25l\x1b[2K\x1b[1A\x1b[38;5;12mbar\x1b[?25h\n": b"bar\n",
        b"\x1b[38:2::1:2:3mcolon\x1b[0m\n": b"colon\n",
        b"\x1b]0;a title\x07text\n": b"text\n",
        b"\x1b]8;;http://x\x1b\\a link\x1b]8;;\x1b\\\n": b"a link\n",
        b"  1%|\r 50%|\r100%|\n": b"100%|\n",
        b"  1%|\r100%|\r\n": b"100%|\n",
        b"  1%|\r100%|\r": b"100%|",
        b"one\n 1%|\r 2%|\ntwo\n": b"one\n 2%|\ntwo\n",
        b"\r\n\r\n": b"\n\n",
        b"\xff\xfe not utf-8 \xc3\n": b"\xff\xfe not utf-8 \xc3\n",
    }
    assert {lines: format_plain(lines) for lines in expected} == expected


def feed_all(chunks: list[bytes]) -> bytes:
    lines = TerminalLines(PREFIX)
    return b"".join(lines.feed(chunk) for chunk in chunks)


@given(cut())
@example([b"\x1b\x1b", b"[31mred"])
def test_terminal_output_does_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    assert feed_all(chunks) == feed_all([b"".join(chunks)])


def test_prefix_precedes_the_first_visible_character() -> None:
    expected = {
        b"one\ntwo\n": b"[r0] one\n[r0] two\n",
        b"prompt> ": b"[r0] prompt> ",
        b"\n\nx": b"\n\n[r0] x",
        b"\r 1%|\r 2%|\n": b"\r[r0]  1%|\r[r0]  2%|\n",
        b"\x1b[31mred\x1b[0m\n": b"\x1b[31m[r0] red\x1b[0m\n",
        b"a\x1b[1A\r\x1b[2Kb": b"[r0] a\x1b[1A\r\x1b[2K[r0] b",
        b"caf\xc3\xa9 \xff\n": b"[r0] caf\xc3\xa9 \xff\n",
        # An escape sequence is not split.
        b"\x1b]8;;http://x\x1b\\link": b"\x1b]8;;http://x\x1b\\[r0] link",
        b"\x1b]0;title\x07text": b"\x1b]0;title\x07[r0] text",
        b"\x1b[38:2::1:2:3mcolour": b"\x1b[38:2::1:2:3m[r0] colour",
        b"\x1b[>4;1mkeys": b"\x1b[>4;1m[r0] keys",
    }
    assert {text: feed_all([text]) for text in expected} == expected
