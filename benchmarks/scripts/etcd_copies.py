"""Write thousands of copies of an object into the etcd of an API server: 50,000 in a minute.

A copy differs from its pattern only in words of equal length, so that its encoding stays valid.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx

_AT_A_TIME: Final = 8
_UID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Etcd:
    """A client of an etcd without TLS, which uses the HTTP gateway of etcd."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def list_patterns(self, part: str, name: str) -> dict[bytes, bytes]:
        """Return the keys below ``/registry/`` and `part` that contain `name`, and their values."""
        first = f"/registry/{part}/".encode()
        found = self._request(
            "kv/range", {"key": _decode_text(first), "range_end": _decode_text(first + b"\xff")}
        )
        pairs = ((_encode_bytes(each["key"]), _encode_bytes(each["value"])) for each in found.get("kvs", ()))
        return {key: value for key, value in pairs if name.encode() in key}

    def copy(
        self, patterns: Mapping[bytes, bytes], words: Callable[[int], Mapping[str, str]], numbers: range
    ) -> None:
        """Write a copy of every pattern for each number; `words(number)` maps old words to new ones.

        Each copy is a separate write, as with an API server. A watch continues after a revision, and would
        miss the second of two objects with the same revision.
        """
        puts = list[Mapping[str, Any]]()
        for number in numbers:
            replacements = words(number)
            for key, value in patterns.items():
                put = {
                    "key": _decode_text(_replace(key, replacements)),
                    "value": _decode_text(_replace(value, replacements)),
                }
                puts.append(put)
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for _ in pool.map(lambda put: self._request("kv/put", put), puts):
                pass

    def _request(self, what: str, body: Mapping[str, Any]) -> Any:
        return self._client.post(f"/v3/{what}", json=body).raise_for_status().json()


def list_uids(values: Iterable[bytes]) -> list[str]:
    """Return all uids in these values."""
    found = dict.fromkeys(match for value in values for match in _UID.findall(value))
    return [each.decode() for each in found]


def _replace(value: bytes, words: Mapping[str, str]) -> bytes:
    for old, new in words.items():
        assert len(old) == len(new), f"{old} is not as long as {new}"
        value = value.replace(old.encode(), new.encode())
    return value


def _decode_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _encode_bytes(value: str) -> bytes:
    return base64.b64decode(value)
