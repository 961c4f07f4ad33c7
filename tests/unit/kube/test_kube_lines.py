"""Lines arrive complete for every split of the stream."""

from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.kube.lines import LineSplitter


@given(
    st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))),
    st.binary(max_size=5),
    st.data(),
)
def test_lines_do_not_depend_on_the_split_of_the_stream(expected, rest, data):
    rest = rest.replace(b"\n", b"")
    stream = b"".join(line + b"\n" for line in expected) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    lines, found = LineSplitter(100), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [*lines.feed(stream[begin:end])]
    assert (found, lines.remainder) == (expected, rest)


def test_line_that_is_too_long_is_cut_and_the_next_is_whole():
    lines = LineSplitter(4)
    found = [
        (line, lines.cut) for piece in (b"abc", b"defg", b"h\nabcd\nx", b"\n") for line in lines.feed(piece)
    ]
    assert found == [(b"abcd", 4), (b"abcd", 0), (b"x", 0)]
