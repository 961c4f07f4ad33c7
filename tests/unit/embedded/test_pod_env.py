"""The environment and the arguments of a container."""

import pytest
from bound_pods import container, only, replica
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.embedded.pod_env import expand_references

NESTED = {"A0": "x" * 100, **{f"A{n}": f"$(A{n - 1})" * 10 for n in range(1, 40)}}
OF_ANOTHER = {"resource": "limits.cpu", "containerName": "x"}


def build_env(*args, **fields):
    found = only(container(*args or ("true",), **fields))
    return found["env"], found["argv"]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$", "$"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$(A$$", "$(A$"),
        ("$()", "$()"),
        ("$(echo $$)", "$(echo $$)"),
        ("$(A$(B))", "$(A$(B))"),
        ("$(B)$(A)", "21"),
    ],
)
def test_references_are_expanded_like_kubernetes_does(text, expanded):
    assert expand_references(text, {"A": "1", "B": "2"}) == expanded


@given(st.text("ab$()", max_size=12))
def test_text_with_doubled_dollars_is_kept(text):
    assert expand_references(text.replace("$", "$$"), {"a": "!", "b": "!", "": "!"}) == text


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        ((), NESTED, "variable A4 is longer than 131071 characters"),
        ((), {"A": "x" * 100_000, **{f"B{n}": "$(A)" for n in range(100)}}, "the environment is longer than"),
        ((), {"A": "x" * 131_072}, "variable A is longer than"),
        (("echo", "$(A)$(A)"), {"A": "x" * 100_000}, ""),
    ],
    ids=["nested", "many", "one", "argument"],
)
def test_nested_references_are_bounded(args, env, words):
    reason, message = only(container(*args or ("true",), env=env))["blocked"]
    assert reason == "CreateContainerConfigError"
    assert message.startswith(words)


def test_unclosed_references_are_expanded_quickly():
    assert expand_references("$(" * 65_000, {}) == "$(" * 65_000


def test_variable_references_earlier_variables_and_arguments_reference_all():
    env, argv = build_env("$(A) $(B) $(C)", env={"A": "$(B)", "B": "1", "C": "$(B)$(B)"})
    assert (env["A"], env["B"], env["C"], argv) == ("$(B)", "1", "11", ["$(B) 1 11"])


def test_last_of_two_variables_with_the_same_name_counts():
    twice = {**container("$(A)"), "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2$(A)"}]}
    assert (only(twice)["env"]["A"], only(twice)["argv"]) == ("21", ["21"])


def test_command_precedes_the_arguments():
    assert only(container("b", command=["a"]))["argv"] == ["a", "b"]
    reason, message = only({"name": "pytorch", "image": "i"})["blocked"]
    assert (reason, "no command specified" in message) == ("CreateContainerError", True)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "j-worker-1"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "a"),
        ({"fieldRef": {"fieldPath": "metadata.uid"}}, "u"),
        ({"fieldRef": {"fieldPath": "metadata.labels['team']"}}, "vision"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "node-1"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.0.0.1"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}, "512"),
        ({"resourceFieldRef": {"resource": "limits.memory"}}, str(1 << 33)),
        ({"resourceFieldRef": {"resource": "requests.nvidia.com/gpu"}}, "0"),
    ],
)
def test_downward_api_fields_are_resolved(source, value):
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "512Mi"}}
    env, argv = build_env("$(A)", env={"A": source}, resources=resources)
    assert (env["A"], argv) == (value, [value])


def test_pod_name_is_kept_while_its_address_is_rewritten():
    env, argv = build_env(
        "--name=$(ME)",
        "--master=j-worker-1",
        env={"ME": {"fieldRef": {"fieldPath": "metadata.name"}}, "SAID": "$(ME)", "HOST": "j-worker-1"},
    )
    assert (env["ME"], env["SAID"], env["HOST"]) == ("j-worker-1", "j-worker-1", "127.0.0.1")
    assert argv == ["--name=j-worker-1", "--master=127.0.0.1"]
    assert env["HOSTNAME"] == "j-worker-1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, 'configmap "c" not found'),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
        ({"env": {"A": {"secretKeyRef": {"name": "s", "key": "k"}}}}, 'secret "s" not found'),
        ({"env": {"A": {"configMapKeyRef": {"name": "c", "key": "k"}}}}, 'configmap "c" not found'),
        ({"env": {"A": {"fieldRef": {"fieldPath": "status.no"}}}}, "unsupported fieldPath: status.no"),
        ({"env": {"A": {"resourceFieldRef": OF_ANOTHER}}}, "container x not found"),
        ({"resources": {"limits": {"memory": "much"}}}, '"much" is not a quantity'),
        ({"name": "../x"}, 'container name "../x" is not a DNS label'),
    ],
)
def test_missing_reference_or_invalid_value_blocks_a_container_with_the_message_of_the_kubelet(
    fields, message
):
    assert only(container("true", **fields))["blocked"] == ["CreateContainerConfigError", message]


def test_optional_references_may_be_missing():
    optional = {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}
    secret = {"secretRef": {"name": "s", "optional": True}}
    env, argv = build_env("$(A)", env={"A": optional}, envFrom=[secret])
    assert "A" not in env
    assert argv == ["$(A)"]


@pytest.mark.parametrize(("limits", "memory"), [({"memory": "1.5Gi"}, 3 << 29), ({"cpu": "1"}, None)])
def test_memory_limit_is_in_bytes(limits, memory):
    assert only(container("true", resources={"limits": limits}))["memory"] == memory


def test_variables_of_a_pod_without_a_job_are_unchanged():
    pod = replica()
    pod["metadata"]["labels"] = {}
    env = only(container("true", env={"MASTER_PORT": "1", "MASTER_ADDR": "j-worker-1"}), pod)["env"]
    assert (env["MASTER_PORT"], env["MASTER_ADDR"]) == ("1", "j-worker-1")
