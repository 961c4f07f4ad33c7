"""Frames out of pieces of a stream: four bytes say how long each is; one that is too long is passed over."""

from collections.abc import Iterator
from typing import Final

_LENGTH: Final = 4


class Frames:
    """Pieces in, frames out, without their lengths."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = _LENGTH
        """Bytes with which there is more to tell."""
        self._over = 0
        """Bytes that are yet to come of a frame that is passed over."""
        self.cut = 0
        """Bytes that were left out of the frame that was given last: none, or all."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The frames that are complete with this piece; nothing of one that is too long, when it begins."""
        kept = piece[self._over :]
        self._over -= len(piece) - len(kept)
        self._parts.append(kept)
        self._size += len(kept)
        if self._size < self._wanted:
            return
        data, at, self._wanted = b"".join(self._parts), 0, _LENGTH
        while (begin := at + _LENGTH) <= len(data):
            end = begin + int.from_bytes(data[at:begin], "big")
            is_long = end - begin > self._longest
            if end > len(data) and not is_long:
                self._wanted = end - at
                break
            self.cut = end - begin if is_long else 0
            yield b"" if is_long else data[begin:end]
            at = min(end, len(data))
            self._over = end - at
        self._parts, self._size = [data[at:]], len(data) - at

    @property
    def rest(self) -> int:
        """Bytes that are missing of a frame that has begun."""
        return self._over or (self._wanted - self._size if self._size else 0)
