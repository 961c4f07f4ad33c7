"""Checks of the task: whether it can be planned, and how the cluster replies to a dry run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.checks.quotas import LIMIT_EXCEEDED
from backend_plugin.doctor.facts import DryRunReply, Facts, Subject
from backend_plugin.doctor.kubectl_commands import build_apply_command
from kfpytorch_common.quantity import InvalidQuantity, parse

_ELSEWHERE: Final = {
    "failed calling webhook": Subject.JOB_TRIAL,
    "violates PodSecurity": Subject.POD_TRIALS,
    'namespaces "': Subject.NAMESPACE,
    "looking up service account": Subject.ACCOUNTS,
    "no PriorityClass with name": Subject.PRIORITIES,
    "exceeded quota": Subject.QUOTAS,
    LIMIT_EXCEEDED: Subject.LIMIT_RANGES,
}
"""Parts of rejection messages, each with the subject (kind of fact) of another check that explains it."""
_DEFAULT: Final = "default-scheduler"
_KEPT: Final = ("metadata.labels", "metadata.annotations", "spec")
_MANY: Final = 5
_EMPTY: Final[tuple[JsonValue, ...]] = (None, "", 0, False, {}, [])

CHECKS: Final = CheckList()


@CHECKS.add()
def _check_task_rejected(facts: Facts) -> Iterator[Violation]:
    """Check that a job can be built from the task with the settings of this platform."""
    for each in facts.task.problems:
        yield Violation(f"{each.field}: {each.value}: {each.message}", each.remedy)


@CHECKS.add(Subject.TEMPLATES)
def _check_template_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the PodTemplate that the settings name exists."""
    # If the task itself names a missing PodTemplate, the check `task-rejected` reports it.
    name, place = facts.settings.default_pod_template_name, facts.settings.kfpytorch.pod_template_namespace
    there = [each for each in facts.get_objects(Subject.TEMPLATES) if deployments.get_name(each) == name]
    if name and not {facts.namespace, place} & {*map(deployments.get_namespace, there)}:
        manifest = (  # This PodTemplate changes no pod.
            f"{{apiVersion: v1, kind: PodTemplate, metadata: {{name: {name}, namespace: {place}}}, "
            "template: {spec: {containers: [{name: default, image: none}]}}}"
        )
        yield Violation(
            f"the settings name the PodTemplate {name}, which is neither in {facts.namespace} nor in {place}",
            f"{build_apply_command(manifest)}  # or leave out default-pod-template-name",
        )


@CHECKS.add(Subject.JOB_TRIAL, Subject.JOB_KINDS)
def _check_job_rejected(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster accepts the job in a dry run."""
    yield from _report_rejection(facts, "the job", facts.job_reply, "the job")


@CHECKS.add(Subject.POD_TRIALS)
def _check_pod_rejected(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster accepts a pod of each role in a dry run."""
    for role, reply in facts.pod_replies.items():
        yield from _report_rejection(facts, f"a {role} pod", reply, "the pod's template")


def _report_rejection(facts: Facts, what: str, reply: DryRunReply, printed: str) -> Iterator[Violation]:
    is_explained = any(
        words in reply.message and subject not in facts.unseen for words, subject in _ELSEWHERE.items()
    )
    if reply.message and not is_explained:
        yield Violation(
            f"the cluster refuses {what} ({reply.reason}): {reply.message}",
            "change what the message names in the task, its PodTemplate or the settings; the command render "
            f"prints {printed}",
        )


@CHECKS.add(Subject.JOB_TRIAL, level=Severity.WARNING)
def _check_job_changed(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster stores the job unchanged."""
    if facts.task.job is not None and facts.job_reply.stored is not None:
        yield from _report_changes("job", _list_differences(facts.task.job, facts.job_reply.stored))


@CHECKS.add(Subject.POD_TRIALS, level=Severity.WARNING)
def _check_pod_changed(facts: Facts) -> Iterator[Violation]:
    """Check that the cluster stores the pods unchanged."""
    for role in facts.task.roles:
        stored = facts.pod_replies[role.name].stored if role.name in facts.pod_replies else None
        if stored is not None:
            differing = [*_list_differences(role.pod, stored), *_iter_effective_additions(role.pod, stored)]
            yield from _report_changes(f"{role.name} pod", differing)


def _iter_effective_additions(sent: Manifest, stored: Manifest) -> Iterator[str]:
    """Yield each addition of the cluster that affects scheduling: a scheduler name, container resources."""
    scheduler = get_text(stored, "spec", "schedulerName")
    if not get_text(sent, "spec", "schedulerName") and scheduler not in ("", _DEFAULT):
        yield f"spec.schedulerName is {scheduler!r}, which the job does not set"
    for part in ("initContainers", "containers"):
        requested = _map_resource_names(sent, part)
        for name, resources in _map_resource_names(stored, part).items():
            added = sorted(resources - requested.get(name, resources))
            if added:
                yield f"spec.{part}[{name}] requests {added[0]}, which the job does not set"


def _map_resource_names(pod: Manifest, part: str) -> Mapping[str, set[str]]:
    return {
        get_text(each, "name"): {
            name for kind in ("requests", "limits") for name in get_mapping(each, "resources", kind)
        }
        for each in get_mappings(pod, "spec", part)
    }


def _report_changes(what: str, differing: Sequence[str]) -> Iterator[Violation]:
    if differing:
        more = f", and {len(differing) - _MANY} more" if len(differing) > _MANY else ""
        yield Violation(
            f"the cluster changes the {what} before it is stored: {', '.join(differing[:_MANY])}{more}",
            "kubectl get mutatingwebhookconfigurations,limitranges -A  # set the same in the settings, or "
            "exempt these pods",
        )


def _list_differences(sent: Manifest, stored: Manifest) -> Sequence[str]:
    """Return the changed fields; fields that the cluster only adds, such as defaults, are not included."""
    found: list[str] = []
    for part in _KEPT:
        keys = part.split(".")
        found += _iter_differences(get_mapping(sent, *keys), get_mapping(stored, *keys), part)
    return found


def _iter_differences(sent: JsonValue, stored: JsonValue, path: str) -> Iterator[str]:
    match sent, stored:
        case Mapping(), Mapping():
            for key, value in sent.items():
                yield from _iter_differences(value, stored.get(key), f"{path}.{key}")
        case (list() | tuple(), list() | tuple()):
            yield from _iter_list_differences(sent, stored, path)
        case _:
            if not _is_kept(sent, stored):
                yield f"{path} is {stored!r} instead of {sent!r}"


def _iter_list_differences(
    sent: Sequence[JsonValue], stored: Sequence[JsonValue], path: str
) -> Iterator[str]:
    """Yield the changed fields of list items.

    Items are compared by name, if they have one, because the cluster can insert items.
    """
    named = {get_text(each, "name"): each for each in stored if isinstance(each, Mapping)}
    for at, each in enumerate(sent):
        if name := get_text(each, "name"):
            yield from _iter_differences(each, named.get(name), f"{path}[{name}]")
        elif each not in stored:
            yield from _iter_differences(each, stored[at] if at < len(stored) else None, f"{path}[{at}]")


def _is_kept(sent: JsonValue, stored: JsonValue) -> bool:
    """True if the API server has kept a value, omitted an empty one, or normalized a quantity."""
    if sent == stored or sent in _EMPTY:
        return True
    try:
        return parse(str(sent)) == parse(str(stored))
    except InvalidQuantity:
        return False
