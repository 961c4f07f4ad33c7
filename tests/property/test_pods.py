"""Property tests: each task becomes pods or problems, and the input is not modified."""

import copy
import json
from collections.abc import Callable
from typing import Any

from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend_plugin.core import settings as platform
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import Attempt, Placement, ReplicaGroup, ReplicaRole, Resources
from backend_plugin.core.manifest.pod import build_pod_templates
from backend_plugin.core.manifest.pod_context import PodRequest
from backend_plugin.core.protojson import decode_struct
from backend_plugin.core.quantity import InvalidQuantity, parse
from backend_plugin.core.schema_check import normalize_json

RUN = Attempt(
    output_prefix="s3://b/0",
    project="p",
    domain="d",
    execution="e",
    node_id="n0",
    attempt=0,
    task_project="p",
    task_domain="d",
    task_name="t",
    task_version="v",
    namespace="p-d",
    labels={"interruptible": "true"},
    environment={"A": "run"},
)
SECTION = {
    "default-pod-template-name": "base",
    "interruptible-node-selector-requirement": {"key": "spot", "operator": "In", "values": ["true"]},
    "default-affinity": {"nodeAffinity": {}},
    "resource-tolerations": {"nvidia.com/gpu": [{"key": "gpu", "operator": "Exists"}]},
    "add-tolerations-for-extended-resources": ["nvidia.com/gpu"],
    "default-security-context": {"privileged": False},
    "kfpytorch": {"task-resources": {"limits": {"cpu": "4", "gpu": "4"}, "defaults": {"memory": "1Gi"}}},
}
FLYTE_ENV = {"name": "FLYTE_INTERNAL_EXECUTION_ID", "value": "e"}

texts = st.sampled_from(["x"] * 20 + ["", "primary", "pytorch", "{{.input}}", "é\n"])
names = st.sampled_from(["primary", "logs", "default", "proxy"] * 5 + ["pytorch", ""])
amounts = st.sampled_from([*["0", "1", "2", 2] * 10, "8", "500m", 0.5, "1Gi", "-1", "x", "", True, None])
junk = st.recursive(
    st.none() | st.booleans() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def maybe_junk(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 150).flatmap(lambda dice: junk if dice == 150 else good)


def objects(
    required: dict[str, st.SearchStrategy[Any]] | None = None, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    optional = {key: maybe_junk(each) for key, each in fields.items()}
    return maybe_junk(st.fixed_dictionaries(required or {}, optional=optional))


def lists(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, max_size=2)


claims = st.dictionaries(
    st.sampled_from(["cpu", "memory", "gpu", "nvidia.com/gpu", "a.b/c"]), amounts, max_size=3
)
expressions = lists(st.just({"key": "z", "operator": "Exists"}) | junk)
containers = objects(
    {"name": names, "image": st.just("i")},
    args=lists(texts),
    env=lists(st.sampled_from([FLYTE_ENV, {"name": "A", "value": "own"}])),
    resources=objects(limits=claims, requests=claims),
    volumeMounts=lists(st.just({"name": "x", "mountPath": "/x"})),
    restartPolicy=st.sampled_from(["Always", ""]),
)
specs = objects(
    {"containers": st.lists(containers, min_size=1, max_size=2)},
    initContainers=st.lists(containers, max_size=1),
    volumes=st.lists(objects({"name": texts}), max_size=1),
    tolerations=lists(objects(key=texts)),
    nodeSelector=st.dictionaries(texts, texts, max_size=2),
    affinity=objects(
        nodeAffinity=objects(
            requiredDuringSchedulingIgnoredDuringExecution=objects(
                nodeSelectorTerms=lists(objects(matchExpressions=expressions))
            )
        )
    ),
    hostNetwork=st.booleans(),
    securityContext=objects(runAsUser=st.floats()),
)
extended = st.fixed_dictionaries(
    {},
    optional={
        "gpuAccelerator": st.sampled_from(
            [{"device": "a100"}, {"unpartitioned": True}, {"partitionSize": "1g"}]
        ),
        "sharedMemory": st.fixed_dictionaries(
            {}, optional={"mountName": texts, "mountPath": texts, "sizeLimit": texts}
        ),
    },
)
entries = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from([1, 1, 2, 3, 3, 5, 4, 0]),
            "value": st.sampled_from([*["1", "0", "8"] * 5, "x", "", "-1"]),
        }
    ),
    max_size=2,
)
common = {
    "extendedResources": extended,
    "config": st.dictionaries(st.just("primary_container_name"), names),
    "metadata": st.fixed_dictionaries(
        {"podTemplateName": st.sampled_from(["", "", "", "base", "base", "missing"])}
    ),
}


def as_struct(spec: Any) -> Struct:
    struct = Struct()
    if isinstance(spec, dict):
        struct.update(spec)
    return struct


@st.composite
def templates(draw: Callable[..., Any]) -> TaskTemplate:
    template = ParseDict(draw(st.fixed_dictionaries(common)), TaskTemplate())
    if draw(st.booleans()):
        template.k8s_pod.pod_spec.CopyFrom(as_struct(draw(specs)))
    else:
        fields = {"image": draw(texts), "args": draw(lists(texts))}
        resources = {"requests": draw(entries), "limits": draw(entries)}
        ParseDict({**fields, "resources": resources}, template.container)
    return template


groups = st.builds(
    ReplicaGroup,
    role=st.sampled_from(ReplicaRole),
    replicas=st.just(1),
    restart_policy=st.just("Never"),
    image=st.none() | texts,
    resources=st.none()
    | st.builds(
        Resources,
        requests=st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.sampled_from(["1", "2", "4", "x"])),
    ),
    placement=(st.none() | objects(spec=specs).filter(lambda it: isinstance(it, dict))).map(
        lambda template: Placement(pod_template=template)
    ),
)
bases = maybe_junk(objects(metadata=objects(labels=st.dictionaries(texts, texts)), spec=specs))


@st.composite
def requests(draw: Callable[..., Any]) -> PodRequest:
    known = {"metadata": {"name": "base", "namespace": "flyte"}, "template": draw(bases)}
    section = SECTION if draw(st.booleans()) else {}
    return PodRequest(
        template=draw(templates()),
        run=RUN,
        settings=platform.read(section),
        dialect=DEFAULT,
        pod_templates=[known],
    )


@settings(suppress_health_check=list(HealthCheck))
@given(requests(), st.lists(groups, max_size=2))
def test_task_becomes_pods_or_problems_and_is_not_modified(request: PodRequest, roles: list[Any]) -> None:
    before = copy.deepcopy(request)
    roles_before = copy.deepcopy(roles)
    try:
        made = build_pod_templates(request, roles)
    except InvalidTask as refusal:
        are_complete = [
            bool(problem.field and problem.message and problem.remedy) for problem in refusal.problems
        ]
    else:
        are_complete = [True]
        again = build_pod_templates(request, roles)
        assert json.dumps(made) == json.dumps(again)
        assert len(made) == len(roles)
        for pod in made:
            assert_is_fit_for_the_api_server(json.loads(json.dumps(pod))["spec"])
    assert all(are_complete)
    assert repr(request) == repr(before)
    assert repr(roles) == repr(roles_before)


def assert_is_fit_for_the_api_server(spec: Any) -> None:
    everybody = [*spec["containers"], *spec.get("initContainers", ())]
    names = [container["name"] for container in everybody]
    assert "pytorch" in names
    assert len(names) == len(set(names))
    for container in everybody:
        assert container["image"]
        env = [each["name"] for each in container.get("env", ())]
        assert len(env) == len(set(env))
        resources = container.get("resources", {})
        limits, wanted = resources.get("limits", {}), resources.get("requests", {})
        assert all(parse(wanted[name]) <= parse(limits[name]) for name in {*limits} & {*wanted})
        assert all(wanted[name] == limits[name] for name in wanted if "/" in name)


@given(st.text(alphabet="0123456789.+-eEnumkMGTPi", max_size=8))
def test_formatted_quantity_is_parsed_to_the_same_value(text: str) -> None:
    try:
        quantity = parse(text)
    except InvalidQuantity:
        return
    assert parse(quantity.text) == quantity
    assert parse(quantity.text).text == quantity.text


plain = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**53), 2**53) | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
)


@given(st.dictionaries(st.text(), plain, max_size=4))
def test_struct_decoded_whole_equals_its_normalized_form(fields: dict[str, Any]) -> None:
    struct = as_struct(fields)
    # Compare the representations, because 1, 1.0 and True are equal in Python.
    assert repr(decode_struct(struct, for_kubernetes=True)) == repr(normalize_json(decode_struct(struct)))
