"""Tests that the remedy of every check consists of valid commands, settings or manifests."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml
from remedy_cases import CASES, GPU

from backend_plugin.cli.doctor import command
from backend_plugin.core.settings.loader import read
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.run_checks import CHECKS
from backend_plugin.embedded.objects import merge_patch

JUDGES = {check.id: check.judge for check in CHECKS}
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
VERBS = frozenset(
    ("apply", "create", "describe", "edit", "get", "label", "logs", "patch", "rollout", "uncordon", "version")
)
SUBJECTS: Mapping[tuple[str, str], Subject | None] = {
    ("v1", "Namespace"): Subject.NAMESPACE,
    ("v1", "ServiceAccount"): Subject.ACCOUNTS,
    ("v1", "ConfigMap"): Subject.CONFIG_MAPS,
    ("v1", "Secret"): Subject.SECRETS,
    ("v1", "PersistentVolumeClaim"): Subject.CLAIMS,
    ("v1", "PodTemplate"): Subject.TEMPLATES,
    ("v1", "ResourceQuota"): Subject.QUOTAS,
    ("scheduling.k8s.io/v1", "PriorityClass"): Subject.PRIORITIES,
    ("networking.k8s.io/v1", "NetworkPolicy"): Subject.POLICIES,
    ("kueue.x-k8s.io/v1beta1", "LocalQueue"): Subject.QUEUES,
    ("kueue.x-k8s.io/v1beta1", "WorkloadPriorityClass"): Subject.JOB_PRIORITIES,
    ("rbac.authorization.k8s.io/v1", "Role"): None,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): None,
}
NAMED_BY_KUBECTL = {kind.lower(): subject for (_, kind), subject in SUBJECTS.items()} | {
    "node": Subject.NODES
}
WITH_VALUE = frozenset(("-n", "-f", "-k", "-l", "-o", "-p"))
CHANGES = ("create", "patch", "label", "uncordon")


def remedy_of(check: str) -> str:
    found = [*JUDGES[check](CASES[check])]
    assert found, f"{check} finds nothing"
    return found[0].remedy


def commands(remedy: str) -> Iterator[list[str]]:
    assert subprocess.run(["bash", "-n", "-c", remedy], check=False).returncode == 0, remedy
    lexer = shlex.shlex(remedy, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in (";", "|", "&&"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def positional(words: Sequence[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    found, is_value = [], False
    for word in words:
        if not is_value and not word.startswith("-"):
            found.append(word)
        is_value = word in WITH_VALUE
    return found


def manifests(text: str) -> Sequence[Mapping[str, Any]]:
    assert not text.startswith("{"), "kubectl reads this as JSON"
    found = yaml.safe_load(text)
    return found["items"] if found["kind"] == "List" else [found]


def check_kubectl(words: Sequence[str]) -> None:
    assert words[0] in VERBS, words
    if "-p" in words:
        assert isinstance(json.loads(words[words.index("-p") + 1]), dict)


def check_echo(words: Sequence[str]) -> None:
    for each in manifests(words[0]):
        assert (each["apiVersion"], each["kind"]) in SUBJECTS
        assert NAME.fullmatch(each["metadata"]["name"])


def check_doctor(words: Sequence[str]) -> None:
    assert words[0] == "doctor"
    command.make_context("doctor", [*words[1:]])


PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "kubectl": check_kubectl,
    "echo": check_echo,
    "kfpytorch": check_doctor,
    "helm": lambda words: None if words[0] in ("install", "upgrade") else pytest.fail(str(words)),
    "grep": lambda words: None,
    "timedatectl": lambda words: None,
}


def check_settings(written: Mapping[str, Any]) -> None:
    """Validate settings: those of the connector by reading them, those of Flyte by their keys."""
    plugins = written.get("plugins", {})
    if "k8s" in plugins or "kfpytorch" in written:
        read(plugins.get("k8s", written))
    else:
        assert set(written) <= {"tasks", "plugins", "defaultTimeout", "defaultServiceConfig"}
        json.loads(written.get("defaultServiceConfig", "{}"))


def validate(remedy: str) -> None:
    first = remedy.partition(" ")[0]
    if re.match(r"write [A-Za-z0-9-]+: ", remedy):
        check_settings(yaml.safe_load(remedy.removeprefix("write ")))
    elif first in PROGRAMS:
        for program, *words in commands(remedy):
            PROGRAMS[program](words)
    else:
        assert not re.search(r"(^|[ ;])(kubectl|helm|pip|aws|grpcurl|openssl|kfpytorch) ", remedy), remedy


@pytest.mark.parametrize("check", JUDGES)
def test_remedy_is_valid_as_printed(check: str) -> None:
    validate(remedy_of(check))


def is_changing(check: str) -> bool:
    words = remedy_of(check).split()
    return words[0] == "echo" or (words[0] == "kubectl" and words[1] in CHANGES)


def changed(facts: Facts, words: Sequence[str]) -> Facts:
    """Return the facts after a command that creates or changes an object."""
    program, *rest = words
    if program == "echo":
        for each in manifests(rest[0]):
            subject = SUBJECTS[each["apiVersion"], each["kind"]]
            facts = facts if subject is None else with_object(facts, subject, each)
        return facts
    verb, *arguments = positional(rest)
    if verb == "create":
        made = {"metadata": {"name": arguments[-1], "namespace": facts.namespace}}
        return with_object(facts, NAMED_BY_KUBECTL[arguments[0]], made)
    if verb == "uncordon":
        return alter(facts, Subject.NODES, {"spec": {"unschedulable": None}})
    if verb == "patch":
        return alter(facts, NAMED_BY_KUBECTL[arguments[0]], json.loads(rest[rest.index("-p") + 1]))
    if verb == "label":
        pairs = dict(each.split("=", 1) for each in arguments if "=" in each)
        subject = NAMED_BY_KUBECTL.get(arguments[0], Subject.DEPLOYMENTS)
        return alter(facts, subject, {"metadata": {"labels": pairs}})
    return facts


def with_object(facts: Facts, subject: Subject, each: Mapping[str, Any]) -> Facts:
    return replace(facts, objects={**facts.objects, subject: [*facts.get_objects(subject), each]})


def alter(facts: Facts, subject: Subject, change: Mapping[str, Any]) -> Facts:
    changed = [merge_patch(each, change) for each in facts.get_objects(subject)]
    return replace(facts, objects={**facts.objects, subject: changed})


@pytest.mark.parametrize("check", [each for each in JUDGES if is_changing(each) and each != "connector-rbac"])
def test_remedy_command_removes_the_finding(check: str) -> None:
    facts = CASES[check]
    for words in commands(remedy_of(check)):
        facts = changed(facts, words)
    if check == "quota-full":  # The status follows the spec.
        facts = alter(facts, Subject.QUOTAS, {"status": {"hard": {"requests.cpu": "3"}}})
    assert [*JUDGES[check](facts)] == []


def write_gang(facts: Facts, written: Mapping[str, Any]) -> Facts:
    return replace(facts, gang=read(written).kfpytorch.gang)


def write_flyte(facts: Facts, written: Mapping[str, Any]) -> Facts:
    return alter(facts, Subject.FLYTE_CONFIG, written)


def write_connector(facts: Facts, written: Mapping[str, Any]) -> Facts:
    # "instead of timeouts", as the remedy states.
    entry = {"timeouts": None, **written}
    return write_flyte(facts, {"plugins": {"connector-service": {"defaultConnector": entry}}})


def write_tolerations(facts: Facts, written: Mapping[str, Any]) -> Facts:
    settings = read(written["plugins"]["k8s"])
    change = {"spec": {"tolerations": [*settings.default_tolerations, *settings.resource_tolerations[GPU]]}}
    roles = [replace(role, pod=merge_patch(role.pod, change)) for role in facts.task.roles]
    return replace(facts, task=replace(facts.task, roles=roles))


WRITTEN: Mapping[str, Callable[[Facts, Mapping[str, Any]], Facts]] = {
    **dict.fromkeys(("gang-crd-missing", "gang-unused", "scheduler-missing"), write_gang),
    **dict.fromkeys(("pod-groups-not-created", "template-gang"), write_gang),
    **dict.fromkeys(("flyte-route", "flyte-connector"), write_flyte),
    **dict.fromkeys(("flyte-retries", "flyte-timeout", "flyte-timeouts"), write_connector),
    "node-taints": write_tolerations,
}
JUDGED_BY_THE_CLUSTER = {"pod-security"}


def is_written(check: str) -> bool:
    return re.match(r"write (kfpytorch|plugins|tasks|default\w+): ", remedy_of(check)) is not None


def test_each_remedy_with_settings_is_tested() -> None:
    assert {each for each in JUDGES if is_written(each)} == {*WRITTEN, *JUDGED_BY_THE_CLUSTER}


@pytest.mark.parametrize("check", WRITTEN)
def test_remedy_settings_remove_the_finding(check: str) -> None:
    facts = CASES[check]
    written = yaml.safe_load(remedy_of(check).removeprefix("write "))
    assert [*JUDGES[check](WRITTEN[check](facts, written))] == []
