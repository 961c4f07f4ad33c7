"""An object store with the part of the S3 API that the server uses: list below a prefix, read a range."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_ERROR = "<Error><Code>{0}</Code><Message>{0}</Message></Error>"


class Bucket(ThreadingHTTPServer):
    """A bucket with any name: its objects and the requests that it received."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.denied = False
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        bucket = cast("Bucket", self.server)
        bucket.go_on.wait(30)
        url = urlsplit(self.path)
        key = unquote(url.path).partition("/")[2].partition("/")[2]
        prefix = parse_qs(url.query).get("prefix", [""])[0]
        bucket.asked.append(key or f"list {prefix}")
        if bucket.denied:
            self._respond(403, _ERROR.format("AccessDenied").encode())
        elif not key:
            self._respond(200, _listing(bucket.objects, prefix).encode())
        elif key not in bucket.objects:
            self._respond(404, _ERROR.format("NoSuchKey").encode())
        else:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            self._respond(206, bucket.objects[key][int(first) : int(last) + 1])

    def _respond(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _listing(objects: dict[str, bytes], prefix: str) -> str:
    inside = {key.removeprefix(prefix): data for key, data in objects.items() if key.startswith(prefix)}
    files = [
        f"<Contents><Key>{escape(prefix + name)}</Key><Size>{len(data)}</Size>"
        "<LastModified>2026-01-31T12:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
        for name, data in inside.items()
        if "/" not in name
    ]
    below = {name.partition("/")[0] for name in inside if "/" in name}
    folders = [f"<CommonPrefixes><Prefix>{prefix}{name}/</Prefix></CommonPrefixes>" for name in below]
    entries = "".join((*files, *folders))
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"


@contextmanager
def served() -> Iterator[Bucket]:
    """Run a bucket server."""
    with Bucket() as bucket:
        thread = threading.Thread(target=lambda: bucket.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield bucket
        finally:
            bucket.go_on.set()
            bucket.shutdown()
            thread.join()
