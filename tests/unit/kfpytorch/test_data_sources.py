from typing import Any

import pytest

from flytekitplugins.kfpytorch import Dataset, Elastic, Model, PyTorch, Storage, TrainJob, Worker
from flytekitplugins.kfpytorch.custom import encode_extension
from flytekitplugins.kfpytorch.problems import ConfigError

DATASET = "s3://data/digits"
MODEL = "hf://owner/model"
SIZE = "50Gi"


def build(**options: Any) -> PyTorch:
    return PyTorch(worker=Worker(replicas=1), train_job=TrainJob(**options))


def list_paths(**options: Any) -> list[str]:
    """Return the paths of the problems of a `TrainJob`."""
    with pytest.raises(ConfigError) as refused:
        build(**options)
    return [each.partition("=")[0].removeprefix("train_job.") for each in refused.value.problems]


def test_text_is_accepted_as_a_uri_or_a_size() -> None:
    assert build(dataset=DATASET, model=MODEL, storage=SIZE) == build(
        dataset=Dataset(uri=DATASET), model=Model(uri=MODEL), storage=Storage(size=SIZE)
    )


def test_encoded_config_has_all_fields() -> None:
    config = build(
        dataset=Dataset(uri=DATASET, secret="s3", env={"REGION": "eu"}),
        model=MODEL,
        storage=Storage(size=SIZE, storage_class="fast"),
    )
    written = encode_extension(config)
    expected = {
        "dataset": {"uri": DATASET, "secret": "s3", "env": {"REGION": "eu"}},
        "model": {"uri": MODEL},
        "storage": {"size": SIZE, "storageClass": "fast"},
    }
    assert {name: written["kfpytorch"]["trainJob"][name] for name in expected} == expected


@pytest.mark.parametrize(
    "options",
    [
        {"dataset": DATASET, "storage": Storage(claim="shared")},
        {"dataset": "s3://bucket", "storage": SIZE},
        {"runtime": "mine", "dataset": "cache://schema/table"},
        {"runtime": "mine", "model": MODEL},
    ],
)
def test_valid_source_is_accepted(options: Any) -> None:
    assert build(**options).problems() == []


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"dataset": DATASET}, "storage"),
        ({"storage": SIZE}, "storage"),
        ({"runtime": "mine", "dataset": DATASET, "storage": SIZE}, "storage"),
        ({"dataset": "hf://name", "storage": SIZE}, "dataset.uri"),
        ({"dataset": "gs://a/b", "storage": SIZE}, "dataset.uri"),
        ({"dataset": "s3://key:secret@bucket/a", "storage": SIZE}, "dataset.uri"),
        ({"dataset": "cache://schema/table", "storage": SIZE}, "dataset.uri"),
        ({"model": "cache://schema/table", "runtime": "mine"}, "model.uri"),
        ({"model": Model(uri=3), "storage": SIZE}, "model.uri"),
        ({"model": 3, "storage": SIZE}, "model"),
        ({"model": Model(uri=MODEL, secret="No Name"), "storage": SIZE}, "model.secret"),
        ({"model": Model(uri=MODEL, env=["A"]), "storage": SIZE}, "model.env"),
        ({"model": Model(uri=MODEL, env={"A": 1}), "storage": SIZE}, "model.env['A']"),
        ({"model": Model(uri=MODEL, env={"1A": ""}), "storage": SIZE}, "model.env['1A']"),
        ({"model": Model(uri=MODEL, env={"STORAGE_URI": ""}), "storage": SIZE}, "model.env['STORAGE_URI']"),
        (
            {"model": Model(uri=MODEL, env={"ACCESS_TOKEN": "x"}), "storage": SIZE},
            "model.env['ACCESS_TOKEN']",
        ),
        ({"dataset": DATASET, "storage": Storage()}, "storage.size"),
        ({"dataset": DATASET, "storage": "much"}, "storage.size"),
        ({"dataset": DATASET, "storage": Storage(size="0")}, "storage.size"),
        ({"dataset": DATASET, "storage": Storage(claim="a", size=SIZE)}, "storage.size"),
        ({"dataset": DATASET, "storage": Storage(claim="A B")}, "storage.claim"),
    ],
)
def test_invalid_value_is_reported_with_its_path(options: Any, path: str) -> None:
    assert list_paths(**options) == [path]


def test_credential_is_not_repeated_in_the_message() -> None:
    token = "hf_" + 30 * "q"
    with pytest.raises(ConfigError) as refused:
        build(model=Model(uri=MODEL, env={"HEADER": token}), storage=SIZE)
    assert token not in str(refused.value)


def test_initializers_of_a_standalone_pod_are_rejected() -> None:
    options = TrainJob(dataset=DATASET, storage=SIZE)
    with pytest.raises(ConfigError) as refused:
        Elastic(nnodes=1, train_job=options)
    assert [each.partition("=")[0] for each in refused.value.problems] == ["train_job.dataset"]
    assert Elastic(nnodes="1", train_job=options).train_job == options
