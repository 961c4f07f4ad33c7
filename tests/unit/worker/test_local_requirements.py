"""The data set and the model of a task are loaded before a local run, as Trainer loads them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flytekitplugins.kfpytorch import Dataset, TrainJob
from flytekitplugins.kfpytorch.worker.local_requirements import DataNotLoaded, load_sources

MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
OTHER_FORMATS = ["*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def load(**sources: Any) -> Path:
    [directory] = load_sources(SimpleNamespace(train_job=TrainJob(**sources))).values()
    return Path(directory)


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


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dataset", {"repo_type": "dataset", "allow_patterns": None, "ignore_patterns": None}),
        ("model", {"repo_type": None, "allow_patterns": MODEL_FILES, "ignore_patterns": OTHER_FORMATS}),
    ],
)
def test_hugging_face_repository_is_loaded_like_trainer_does(monkeypatch, kind, expected) -> None:
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
    monkeypatch.setenv("ACCESS_TOKEN", "t")
    folder = load(**{kind: "hf://owner/name"})
    assert [*folder.iterdir()] == [folder / "config.json"]
    assert hub.request == {"repo_id": "owner/name", "local_dir": str(folder), "token": "t", **expected}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Objects:
    store = Objects()
    monkeypatch.setitem(sys.modules, "s3fs", SimpleNamespace(S3FileSystem=store))  # type: ignore[arg-type]
    return store


def test_objects_keep_their_names_below_the_prefix(store: Objects) -> None:
    env = {"ENDPOINT": "http://s3", "REGION": "eu", "IGNORE_PATTERNS": "*.bin, *.pt"}
    folder = load(dataset=Dataset(uri="s3://data/digits/", env=env))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a.csv": "1", "c.csv": "3"}
    assert store.options["endpoint_url"] == "http://s3"
    assert store.options["client_kwargs"] == {"region_name": "eu"}


def test_prefix_may_be_a_single_object(store: Objects) -> None:
    assert (load(dataset="s3://data/digits/a.csv") / "a.csv").read_text() == "1"


def test_file_of_the_same_size_is_not_loaded_again(store: Objects) -> None:
    for _ in range(2):
        load(dataset="s3://data/digits")
    assert sorted(store.transferred) == sorted(store.objects)


def test_missing_package_and_unsupported_uri_are_errors(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # type: ignore[arg-type]
    with pytest.raises(DataNotLoaded, match="pip install huggingface_hub, or set FLYTE_KFPYTORCH_DATASET"):
        load(dataset="hf://owner/name")
    with pytest.raises(DataNotLoaded, match="cache://schema/table exists only in a cluster"):
        load(dataset="cache://schema/table")
