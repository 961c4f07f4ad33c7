"""Task outputs in an object store, over HTTP with the part of the S3 API that the server uses."""

import asyncio
from xml.sax.saxutils import escape

import pytest
from aiohttp import web
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from threaded_server import ThreadedServer

from backend_plugin.shell.output_prefixes import OutputPrefixes
from backend_plugin.shell.output_reader import OutputReader, ReadLimits, TaskOutputs
from backend_plugin.shell.output_stores import StoreUnavailable

_XML = "application/xml"
_ERROR = "<Error><Code>{0}</Code><Message>{0}</Message></Error>"


class Bucket(ThreadedServer):
    """A bucket with any name: its objects and the requests that it received."""

    def __init__(self):
        super().__init__()
        self.objects = {}
        self.requests = []
        self.denied = False
        self.is_slow = False

    async def answer(self, request):
        while self.is_slow:
            await asyncio.sleep(0.01)
        key = request.path.partition("/")[2].partition("/")[2]
        prefix = request.query.get("prefix", "")
        self.requests.append(key or f"list {prefix}")
        if self.denied:
            return web.Response(status=403, text=_ERROR.format("AccessDenied"), content_type=_XML)
        if not key:
            return web.Response(text=_listing(self.objects, prefix), content_type=_XML)
        if key not in self.objects:
            return web.Response(status=404, text=_ERROR.format("NoSuchKey"), content_type=_XML)
        first, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
        return web.Response(status=206, body=self.objects[key][int(first) : int(last) + 1])


def _listing(objects, prefix):
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


pytest.importorskip("s3fs")


@pytest.fixture
def bucket(monkeypatch):
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION"):
        monkeypatch.setenv(f"AWS_{name}", "any")
    bucket = Bucket()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.listen()}")
    yield bucket
    bucket.close()


def document(message):
    return ErrorDocument(error=ContainerError(message=message, worker="w")).SerializeToString()


async def test_prefix_is_listed_and_its_error_files_are_read(bucket):
    bucket.objects = {
        "x/data/0/outputs.pb": b"",
        "x/data/0/error-b.pb": document("second"),
        "x/data/0/error-a.pb": document("first"),
        "x/data/0/error.pb": b"",
        "x/data/0/raw/error.pb": document("not ours"),
        "x/data/01/error.pb": document("not ours"),
    }
    outcomes = OutputReader(OutputPrefixes(["s3://flyte/x"]))
    first = await outcomes.read_outputs("s3://flyte/x/data/0")
    bucket.objects["x/data/0/error-0.pb"] = document("late")
    second = await outcomes.read_outputs("s3://flyte/x/data/0")
    assert [(file.path, file.message) for file in first.error_files] == [
        ("s3://flyte/x/data/0/error-a.pb", "first"),
        ("s3://flyte/x/data/0/error-b.pb", "second"),
        ("s3://flyte/x/data/0/error.pb", ""),
    ]
    assert first.outputs
    assert [file.message for file in second.error_files] == ["late", "first", "second", ""]
    assert sorted(bucket.requests[:3]) == ["list x/data/0/", "x/data/0/error-a.pb", "x/data/0/error-b.pb"]


def test_empty_prefix_has_no_outputs(bucket):
    assert asyncio.run(OutputReader(OutputPrefixes()).read_outputs("s3://flyte/nothing/0")) == TaskOutputs()


def test_denied_access_is_reported(bucket):
    bucket.denied = True
    denied = r"s3://flyte cannot be read: PermissionError.*may list and read"
    with pytest.raises(StoreUnavailable, match=denied):
        asyncio.run(OutputReader(OutputPrefixes()).read_outputs("s3://flyte/x"))


async def test_slow_store_times_out_and_is_read_again(bucket):
    bucket.objects["x/outputs.pb"] = b""
    bucket.is_slow = True
    outcomes = OutputReader(OutputPrefixes(), ReadLimits(seconds=5, at_once=1))
    with pytest.raises(StoreUnavailable, match="did not answer within 5 s"):
        await outcomes.read_outputs("s3://flyte/x")
    bucket.is_slow = False
    assert await outcomes.read_outputs("s3://flyte/x") == TaskOutputs(outputs=True)
