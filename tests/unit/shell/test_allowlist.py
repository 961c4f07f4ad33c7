"""Tests of the allowlist of namespaces and output prefixes."""

import pytest
from builders import a_run

from backend_plugin.shell.allowlist import FLYTES, Allowlist
from backend_plugin.shell.output_prefixes import DEFAULT, OutputPrefixes, PrefixNotAllowed, StoreLocation

PREFIXES = OutputPrefixes(["s3://bucket", "s3://private"])
LISTED = OutputPrefixes(
    ["s3://flyte", "s3://shared/flyte/", "gs://team-*/out", "file:///data/flyte", "/scratch"]
)


def refused(allowed, **run):
    return [*Allowlist(prefixes=PREFIXES, **allowed).check_attempt(a_run(**run))]


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "kfpytorch"])
def test_system_and_release_namespaces_are_rejected_by_each_setting(namespace: str) -> None:
    given = {"namespaces": ("*", namespace), "template": "*", "refused": ("kfpytorch",)}
    (problem,) = refused(given, namespace=namespace)
    assert (problem.field, problem.value) == ("task_execution_metadata.namespace", namespace)
    assert not Allowlist(prefixes=OutputPrefixes(), **given).is_served(namespace)


@pytest.mark.parametrize(
    ("template", "namespace", "is_served"),
    [
        (FLYTES, "project-development", True),
        (FLYTES, "project-production", False),
        ("{{ domain }}", "development", True),
        ("{{domain}}", "development", True),
        ("flyte-{{ project }}", "flyte-project", True),
        ("{{ org }}-{{ project }}-{{ domain }}", "acme-project-development", True),
        ("team-*", "team-vision", True),
        ("*", "anything", True),
    ],
)
def test_namespace_must_match_project_and_domain(template: str, namespace: str, is_served: bool) -> None:
    assert (refused({"template": template}, namespace=namespace) == []) is is_served


@pytest.mark.parametrize("namespace", ["../../etc", "Upper", "", "a" * 64])
def test_invalid_namespace_is_rejected_with_any_allowlist(namespace: str) -> None:
    (problem,) = refused({"namespaces": ("*",), "template": "*"}, namespace=namespace)
    assert (problem.field, problem.value) == ("task_execution_metadata.namespace", namespace)


def test_rejection_of_a_prefix_names_no_listed_location_and_only_a_setting_that_can_allow_it():
    for prefix, can_be_allowed in (("http://a/f1", False), ("s3://a/../f1", False), ("s3://a/f1", True)):
        (problem,) = refused({}, output_prefix=prefix)
        assert (problem.field, "output-prefixes" in problem.remedy) == ("output_prefix", can_be_allowed)
        assert "private" not in problem.message + problem.remedy


def test_both_namespace_rules_apply_and_a_project_is_no_pattern():
    for project in ("*", "?roject", "[a-z]roject"):
        assert refused({"template": FLYTES}, project=project)
    given = {"template": FLYTES, "namespaces": ("team-*",)}
    assert refused(given)
    assert not refused(given, project="team-a", namespace="team-a-development")


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
    assert (LISTED.get_location(prefix), LISTED.find_rejection_reason(prefix)) == (place, None)


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
    *("memory://flyte/a", "data:,a", "abfs://container@account.dfs.core.windows.net/a"),
    *("gs://team-/in", "gs://other/out", "s3://flyte/" + "a" * 5_000),
]


@pytest.mark.parametrize("prefix", OTHER)
def test_other_prefix_is_rejected_in_each_spelling(prefix: str) -> None:
    assert len(str(LISTED.find_rejection_reason(prefix))) < 400
    with pytest.raises(PrefixNotAllowed):
        LISTED.get_location(prefix)


def test_default_prefixes_allow_any_bucket_but_no_file_and_no_host():
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
