"""Our manifests are valid for older operators: their CRDs have every field."""

from functools import cache
from pathlib import Path

import pytest
import yaml
from rig import operator

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module", params=[*operator.OLDER, operator.MODULE])
def kinds(request, bare):
    bare.crds(operator.crds(request.param))
    yield bare
    bare.crds(operator.crds())


@cache
def manifests(name):
    planned = yaml.safe_load_all((GOLDEN / name / "plan.yaml").read_text())
    return tuple(each for each in planned if each["kind"] == "PyTorchJob")


@pytest.mark.parametrize("name", sorted(each.parent.name for each in GOLDEN.glob("*/plan.yaml")))
def test_manifest_passes_strict_validation_of_older_operators(kinds, name):
    for manifest in manifests(name):
        kinds.namespace(manifest["metadata"]["namespace"])
        answer = kinds.admin.try_create(manifest, fieldValidation="Strict")
        assert answer.is_success, answer.text
        stored = answer.json()["spec"]["pytorchReplicaSpecs"]
        assert stored.keys() == manifest["spec"]["pytorchReplicaSpecs"].keys()
