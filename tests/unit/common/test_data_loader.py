import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfpytorch_common import data_loader


class Hub:
    """A stand-in for huggingface_hub that writes one file and keeps the request."""

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}

    def snapshot_download(self, **request: Any) -> None:
        self.request = request
        Path(request["local_dir"], "config.json").write_text("{}")


class Objects:
    """A stand-in for s3fs with some objects; it counts the transfers."""

    def __init__(self) -> None:
        self.objects = {"data/digits/a.csv": b"1", "data/digits/more/b.bin": b"22", "data/digits/c.csv": b"3"}
        self.options: dict[str, Any] = {}
        self.transferred: list[str] = []

    def __call__(self, **options: Any) -> "Objects":
        self.options = options
        return self

    def find(self, prefix: str, **_: Any) -> dict[str, Any]:
        found = {name for name in self.objects if name == prefix or name.startswith(f"{prefix}/")}
        return {name: {"size": len(self.objects[name])} for name in found}

    def get_file(self, name: str, path: str) -> None:
        self.transferred.append(name)
        Path(path).write_bytes(self.objects[name])


MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
OTHER_FORMATS = ["*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dataset", {"repo_type": "dataset", "allow_patterns": None, "ignore_patterns": None}),
        ("model", {"repo_type": None, "allow_patterns": MODEL_FILES, "ignore_patterns": OTHER_FORMATS}),
    ],
)
def test_hugging_face_repository_is_loaded_like_trainer_does(tmp_path, monkeypatch, kind, expected) -> None:
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
    folder = tmp_path / "files"
    data_loader.load(kind, "hf://owner/name", folder, {"ACCESS_TOKEN": "t"})
    assert [*folder.iterdir()] == [folder / "config.json"]
    assert hub.request == {"repo_id": "owner/name", "local_dir": str(folder), "token": "t", **expected}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Objects:
    store = Objects()
    monkeypatch.setitem(sys.modules, "s3fs", SimpleNamespace(S3FileSystem=store))  # type: ignore[arg-type]
    return store


def test_objects_keep_their_names_below_the_prefix(tmp_path: Path, store: Objects) -> None:
    env = {"ENDPOINT": "http://s3", "REGION": "eu", "IGNORE_PATTERNS": "*.bin, *.pt"}
    data_loader.load("dataset", "s3://data/digits/", tmp_path, env)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "1", "c.csv": "3"}
    assert store.options["endpoint_url"] == "http://s3"
    assert store.options["client_kwargs"] == {"region_name": "eu"}


def test_prefix_may_be_a_single_object_and_a_file_of_the_same_size_is_not_loaded_again(tmp_path, store):
    for uri in ("s3://data/digits/a.csv", "s3://data/digits", "s3://data/digits"):
        data_loader.load("dataset", uri, tmp_path, {})
        assert (tmp_path / "a.csv").read_text() == "1"
    assert sorted(store.transferred) == sorted(store.objects)


def test_missing_package_and_unsupported_uri_are_errors(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # type: ignore[arg-type]
    with pytest.raises(data_loader.LoaderNotInstalled, match="huggingface_hub"):
        data_loader.load("dataset", "hf://owner/name", tmp_path, {})
    with pytest.raises(data_loader.UnsupportedUri):
        data_loader.load("dataset", "cache://schema/table", tmp_path, {})
