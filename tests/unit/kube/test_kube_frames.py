"""Frames arrive complete for every split of the stream."""

from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.kube.frames import FrameSplitter


def framed(content):
    return len(content).to_bytes(4, "big") + content


@given(st.lists(st.binary(max_size=20)), st.binary(max_size=5), st.data())
def test_frames_do_not_depend_on_the_split_of_the_stream(payloads, rest, data):
    whole = framed(b"x" * 9)
    stream = b"".join(map(framed, payloads)) + whole[: len(rest)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames, found = FrameSplitter(10), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [(frame, frames.cut) for frame in frames.feed(stream[begin:end])]
    assert found == [(b"", len(each)) if len(each) > 10 else (each, 0) for each in payloads]
    assert bool(frames.remainder) == bool(rest)
