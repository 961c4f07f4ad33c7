import pytest

from backend_plugin.shell.output_prefixes import DEFAULT, OutputPrefixes, PrefixNotAllowed, StoreLocation

LISTED = OutputPrefixes(
    ["s3://flyte", "s3://shared/flyte/", "gs://team-*/out", "file:///data/flyte", "/scratch"]
)


@pytest.mark.parametrize(
    ("prefix", "place"),
    [
        ("s3://flyte", StoreLocation(scheme="s3", root="flyte", path="")),
        ("s3://flyte/a/b/", StoreLocation(scheme="s3", root="flyte", path="a/b")),
        ("s3://flyte//a", StoreLocation(scheme="s3", root="flyte", path="/a")),
        ("s3://shared/flyte/a", StoreLocation(scheme="s3", root="shared", path="flyte/a")),
        ("s3://shared/flyte", StoreLocation(scheme="s3", root="shared", path="flyte")),
        ("gs://team-a/out/x y/ü", StoreLocation(scheme="gs", root="team-a", path="out/x y/ü")),
        ("file:///data/flyte/a", StoreLocation(scheme="file", root="/data/flyte", path="a")),
        ("/data/flyte//a/", StoreLocation(scheme="file", root="/data/flyte", path="a")),
        ("/data/flyte", StoreLocation(scheme="file", root="/data/flyte", path="")),
        ("/scratch/%2e%2e/a", StoreLocation(scheme="file", root="/scratch", path="%2e%2e/a")),
    ],
)
def test_prefix_below_a_listed_location_is_read(prefix: str, place: StoreLocation) -> None:
    assert LISTED.get_location(prefix) == place
    assert LISTED.find_rejection_reason(prefix) is None


OTHER = [
    *("", "a/b", "~/a", "/", "/etc/flyte", "/data", "/data/flytes"),
    *("/data/flyte/../../etc", "/data/flyte/./a", "//data/flyte"),
    *("file:/data/flyte/a", "file://data/flyte", "file://localhost/data/flyte", "file:////data/flyte"),
    *("file:///data/flyte/../../etc", "FILE:///data/flyte/a"),
    *("local:///data/flyte/a", "local://data/flyte/a"),
    *("s3://flytes/a", "s3://flyte2", "s3://shared/flytes/a", "s3://shared/flyte/../other"),
    *("s3://shared/a", "s3://shared//flyte/a", "s3://", "s3:///flyte/a", "s3://*/a"),
    *("s3://flyte@evil/a", "s3://key:secret@flyte/a", "s3://flyte:80/a"),
    *("s3://flyte/a?versionId=1", "s3://flyte/a#b", "s3://flyte\\a", "s3://flyte\n/a", "s3://flyte/a\x00b"),
    *("S3://flyte/a", "s3://flyte/a::file:///etc", "simplecache::s3://flyte/a"),
    *("zip://error.pb::s3://flyte/a", "zip://s3://flyte/a", "http://flyte/a", "https://flyte/a"),
    *("ftp://flyte/a", "sftp://flyte/a", "hdfs://flyte/a", "github://flyte/a", "memory://flyte/a"),
    *("reference://flyte/a", "data:,a", "abfs://container@account.dfs.core.windows.net/a"),
    *("gs://team-/in", "gs://other/out", "s3://flyte/" + "a" * 5_000),
]


@pytest.mark.parametrize("prefix", OTHER)
def test_other_prefix_is_rejected_in_each_spelling(prefix: str) -> None:
    assert len(str(LISTED.find_rejection_reason(prefix))) < 400
    with pytest.raises(PrefixNotAllowed):
        LISTED.get_location(prefix)


def test_root_directory_can_be_listed() -> None:
    place = StoreLocation(scheme="file", root="/", path="etc/flyte")
    assert OutputPrefixes(["file:///"]).get_location("/etc/flyte") == place


def test_default_prefixes_allow_any_bucket_but_no_file_and_no_host() -> None:
    prefixes = OutputPrefixes()
    assert not any(prefixes.find_rejection_reason(f"{each.removesuffix('*')}bucket/a") for each in DEFAULT)
    assert prefixes.schemes == {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
    assert all(
        prefixes.find_rejection_reason(each)
        for each in ("/a", "file:///a", "memory://a/b", "https://a/b", "ftp://a/b")
    )


@pytest.mark.parametrize(
    "listed", ["s3", "*", "s3://", "http://a/", "file://data", "s3://a/../b", "s3://a@b"]
)
def test_invalid_location_cannot_be_listed(listed: str) -> None:
    with pytest.raises(PrefixNotAllowed):
        OutputPrefixes([listed])


@pytest.mark.parametrize("url", ["s3://flyte/a/b", "gs://team-a/out", "file:///data/flyte/a"])
def test_location_is_written_in_its_original_form(url: str) -> None:
    assert LISTED.get_location(url).url == url
