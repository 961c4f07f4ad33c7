"""Compares the required fields and list keys of pods in `core.pod_schema` with those in the CRDs."""

import pytest
import yaml
from rig import operator, trainer

from backend_plugin.core.pod_schema import LIST_KEYS
from backend_plugin.core.schema_check import get_types

TYPES = get_types()
# `plan` removes or reports repeated entries of these lists before it applies `LIST_KEYS`.
CHECKED_OTHERWISE = {
    **dict.fromkeys(("EnvVar", "LocalObjectReference"), ("name",)),
    "ContainerPort": ("containerPort", "protocol"),
    **dict.fromkeys(("Container", "EphemeralContainer", "Volume"), ("name",)),
    "VolumeMount": ("mountPath",),
}
POD = ("template", "spec")
PODS = {
    "pytorchjobs": ("pytorchReplicaSpecs", "", *POD),
    "_trainingruntimes": (*POD, "replicatedJobs", "", *POD, *POD),
}


def read_pod_schema(crd):
    (path,) = (each for each in [*operator.crds(), *trainer.list_crds()] if crd in each.name)
    schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", *PODS[crd]):
        schema = schema["properties"][name] if name else schema.get("items") or schema["additionalProperties"]
    return schema


def iter_objects(schema, kind):
    """Yield the type and the schema of each object that occurs both in `pod_schema` and in the CRD."""
    kind = kind.rstrip("!*")
    if kind.startswith("["):
        yield from iter_objects(schema["items"], kind[1:-1])
    elif kind in TYPES:
        yield kind, schema
        for name in TYPES[kind].keys() & schema.get("properties", {}):
            yield from iter_objects(schema["properties"][name], TYPES[kind][name])


def iter_list_keys(kind, schema):
    """Yield the type of the entries and the keys of each list of the list type `map` in an object."""
    for name, part in schema.get("properties", {}).items():
        if part.get("x-kubernetes-list-type") == "map":
            yield TYPES[kind][name].rstrip("!*")[1:-1], tuple(part["x-kubernetes-list-map-keys"])


@pytest.mark.parametrize("crd", PODS)
def test_required_fields_and_list_keys_are_those_of_the_crd(crd):
    objects = [*iter_objects(read_pod_schema(crd), "PodSpec")]
    theirs = {(kind, name) for kind, schema in objects for name in schema.get("required", ())}
    kinds = {kind: TYPES[kind] for kind, _ in objects}
    ours = {(kind, name) for kind, fields in kinds.items() for name in fields if fields[name].endswith("*")}
    assert ours == theirs
    keys = {pair for kind, schema in objects for pair in iter_list_keys(kind, schema)}
    assert keys == {*LIST_KEYS.items(), *CHECKED_OTHERWISE.items()}
