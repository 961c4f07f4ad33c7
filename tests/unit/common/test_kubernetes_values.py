import pytest

from kfpytorch_common import operator_env
from kfpytorch_common.labels import is_key, is_subdomain, is_value
from kfpytorch_common.quantity import InvalidQuantity, parse

# Printed by k8s.io/apimachinery v0.34.1.
UNCHANGED = ["0", "1500m", "1e3", "1E3", "1E", "1100", "007", "+2", "5.", "1.500", "1e003", "2e-0003"]
WRITTEN = (
    dict(zip(UNCHANGED, UNCHANGED, strict=True))
    | {"0.5": "500m", ".5": "500m", "1000m": "1", "12e2": "1200", "0.5e003": "500", "2000000": "2M"}
    | {"1024Mi": "1Gi", "0.5Gi": "512Mi", "0.1Gi": "107374182400m", "0.5Ki": "512", "1e-12": "1e-9"}
    | {"1000Ei": "9223372036854775807", "-1000Ei": "-9223372036854775807"}
)


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (
            is_key,
            ["a", "gpu-pool", "A_b.c", "example.com/pool", "9", "x" * 63, f"{'d' * 253}/a"],
            ["", "a b", "-a", "a-", "/a", "a/", "a/b/c", "é", "a\n", "A.com/a", "x" * 64, f"{'d' * 254}/a"],
        ),
        (is_value, ["", "h100", "A_b.c-d", "x" * 63], ["x" * 64, "a b", "-a", "a/b", "a\n"]),
        (is_subdomain, ["high", "a.b-c.d", "x" * 253], ["x" * 254, "", "High", "a..b", "a_b", "a-", "a\n"]),
    ],
)
def test_label_keys_label_values_and_object_names_are_checked(check, valid, invalid) -> None:
    assert [text for text in (*valid, *invalid) if check(text)] == valid


@pytest.mark.parametrize(("text", "written"), WRITTEN.items())
def test_quantity_is_written_like_go_does(text: str, written: str) -> None:
    assert parse(text).text == written


@pytest.mark.parametrize(
    "text", ["", "x", "Gi", ".", "1 Gi", "1gi", "1Kib", "--1", "1e", "1e999", "9" * 61, "\u0661"]
)
def test_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(InvalidQuantity):
        parse(text)


def test_quantities_are_compared_by_value() -> None:
    assert parse("0.5") == parse("500m") < parse("1") < parse("1Ki") < parse("1025")
    assert [bool(parse(text)) for text in ("0", "0Gi", "1n", "-1")] == [False, False, True, True]
    assert [parse(text).is_whole for text in ("2", "2000m", "0.5", "1Gi")] == [True, True, False, True]


def build_expected(rank: str, replicas: str) -> dict[str, str]:
    """Return the environment that the training operator sets (envvar.go, versions 1.7 to 1.9)."""
    return {
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(("MASTER_PORT", "PET_MASTER_PORT"), "23456"),
        **dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR"), "127.0.0.1"),
        **dict.fromkeys(("WORLD_SIZE", "PET_NNODES"), replicas),
        **dict.fromkeys(("RANK", "PET_NODE_RANK"), rank),
        "PET_NPROC_PER_NODE": "auto",
    }


def test_replica_gets_the_environment_of_the_training_operator() -> None:
    assert operator_env.build_replica_env(2, 3, 23456) == build_expected("2", "3")
    assert operator_env.build_single_process_env(23456) == {
        **build_expected("0", "1"),
        **dict.fromkeys(("PET_NPROC_PER_NODE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1"),
        **dict.fromkeys(("LOCAL_RANK", "GROUP_RANK"), "0"),
    }
    assert operator_env.build_elastic_env(2, 8, 3, 29400) == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": "127.0.0.1:29400",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "2:2",
        "PET_MAX_RESTARTS": "3",
        "PET_NPROC_PER_NODE": "8",
    }
    names = [operator_env.format_replica_name(index) for index in (0, 1, 2)]
    assert names == ["master-0", "worker-0", "worker-1"]
