"""Lines out of pieces of a stream; one that is too long is cut, and does not stop the others."""

from collections.abc import Iterator
from typing import Final

_END: Final = b"\n"


class Lines:
    """Pieces in, lines out, without their ends; what stands behind the last end is in `rest`."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self.cut = 0
        """Bytes that were left out of the line that was given last."""
        self._over = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that are complete with this piece."""
        begin = 0
        while (end := piece.find(_END, begin)) >= 0:
            self._keep(piece[begin:end])
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._size = [], 0
            self.cut, self._over = self._over, 0
            begin = end + 1
            yield line
        if begin < len(piece):
            self._keep(piece[begin:])

    def _keep(self, part: bytes) -> None:
        kept = part[: max(0, self._longest - self._size)]
        self._over += len(part) - len(kept)
        self._size += len(kept)
        if kept:
            self._parts.append(kept)

    @property
    def rest(self) -> bytes:
        """What has no end yet."""
        return b"".join(self._parts)
