"""Task outputs in an object store, over HTTP with the S3 API."""

import asyncio
from collections.abc import Iterator

import pytest
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from object_store import Bucket, served

from backend_plugin.shell.output_prefixes import OutputPrefixes
from backend_plugin.shell.output_reader import OutputReader, ReadLimits, TaskOutputs
from backend_plugin.shell.output_stores import StoreUnavailable

pytest.importorskip("s3fs")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with served() as bucket:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "here")
        yield bucket


def document(message: str) -> bytes:
    return ErrorDocument(error=ContainerError(message=message, worker="w")).SerializeToString()


async def test_prefix_is_listed_and_its_error_files_are_read(bucket: Bucket) -> None:
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
    assert sorted(bucket.asked[:3]) == ["list x/data/0/", "x/data/0/error-a.pb", "x/data/0/error-b.pb"]


def test_empty_prefix_has_no_outputs(bucket: Bucket) -> None:
    assert asyncio.run(OutputReader(OutputPrefixes()).read_outputs("s3://flyte/nothing/0")) == TaskOutputs()


def test_denied_access_is_reported(bucket: Bucket) -> None:
    bucket.denied = True
    with pytest.raises(
        StoreUnavailable, match=r"s3://flyte cannot be read: PermissionError.*may list and read"
    ):
        asyncio.run(OutputReader(OutputPrefixes()).read_outputs("s3://flyte/x"))


async def test_slow_store_times_out_and_is_read_again(bucket: Bucket) -> None:
    bucket.objects["x/outputs.pb"] = b""
    bucket.go_on.clear()

    outcomes = OutputReader(OutputPrefixes(), ReadLimits(seconds=5, at_once=1))
    with pytest.raises(StoreUnavailable, match="did not answer within 5 s"):
        await outcomes.read_outputs("s3://flyte/x")
    bucket.go_on.set()
    result = await outcomes.read_outputs("s3://flyte/x")
    assert result == TaskOutputs(outputs=True)


def test_unreachable_store_is_reported(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreUnavailable, match="s3://flyte "):
        asyncio.run(OutputReader(OutputPrefixes(), ReadLimits(seconds=8)).read_outputs("s3://flyte/x"))
