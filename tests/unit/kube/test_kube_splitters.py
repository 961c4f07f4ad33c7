"""Lines and frames arrive complete for every split of the stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.kube.splitters import FrameSplitter, LineSplitter


def framed(content):
    return len(content).to_bytes(4, "big") + content


def lined(content):
    return content + b"\n"


@pytest.mark.parametrize(("splitter", "join"), [(LineSplitter, lined), (FrameSplitter, framed)])
@given(
    payloads=st.lists(st.binary(max_size=20).map(lambda each: each.replace(b"\n", b""))),
    rest=st.integers(0, 5),
    data=st.data(),
)
def test_parts_do_not_depend_on_the_split_of_the_stream(splitter, join, payloads, rest, data):
    incomplete = join(b"x" * 9)[:rest]
    stream = b"".join(map(join, payloads)) + incomplete
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts, found = splitter(100), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [*parts.feed(stream[begin:end])]
    assert (found, parts.remainder, parts.cut) == (payloads, incomplete, 0)


def test_line_that_is_too_long_is_cut_and_the_next_is_whole():
    lines = LineSplitter(4)
    found = [
        (line, lines.cut) for piece in (b"abc", b"defg", b"h\nabcd\nx", b"\n") for line in lines.feed(piece)
    ]
    assert found == [(b"abcd", 4), (b"abcd", 0), (b"x", 0)]


def test_frame_that_is_too_long_is_reported_with_its_length_alone():
    frames = FrameSplitter(4)
    assert [*frames.feed(framed(b"abcde")[:4])] == [b""]
    assert frames.cut == 5
