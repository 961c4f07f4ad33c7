"""Checks of the task: whether it can be planned, and how the cluster replies to a dry run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.checks import flyte
from backend_plugin.doctor.facts import Facts, Reply, Subject

_ELSEWHERE: Final = {
    "failed calling webhook": Subject.JOB_TRIAL,
    "violates PodSecurity": Subject.POD_TRIALS,
    "being terminated": Subject.NAMESPACE,
    'namespaces "': Subject.NAMESPACE,
    "looking up service account": Subject.ACCOUNTS,
    "no PriorityClass with name": Subject.PRIORITIES,
    "exceeded quota": Subject.QUOTAS,
    "usage per Container is": Subject.LIMIT_RANGES,
}
"""Parts of rejection messages that another check explains, if it could observe this subject."""
_DEFAULT: Final = "default-scheduler"
_KEPT: Final = ("metadata.labels", "metadata.annotations", "spec")
_MANY: Final = 5


def _refused_here(facts: Facts) -> Iterator[Found]:
    for each in facts.task.problems:
        yield Found(sentence=f"{each.field}: {each.value}: {each.message}", remedy=each.remedy)


def _no_template(facts: Facts) -> Iterator[Found]:
    """Report a missing default PodTemplate; a missing template of the task itself fails the plan."""
    name, place = facts.settings.default_pod_template_name, facts.settings.kfpytorch.pod_template_namespace
    if _is_gone(facts, name, place):
        yield Found(
            sentence=f"the settings name the PodTemplate {name}, which is neither in {facts.namespace} "
            f"nor in {place}",
            remedy=f"{_making_template(name, place)}  # or leave out default-pod-template-name",
        )


def _unmade_template(facts: Facts) -> Iterator[Found]:
    """Report a missing PodTemplate of Flyte's configuration, which FlytePropeller silently ignores.

    Often the template is created together with the namespace of a project.
    """
    name, place = flyte.template_name(facts), facts.flyte_namespace
    if _is_gone(facts, name, place):
        yield Found(
            sentence=f"Flyte's configuration names the PodTemplate {name}, which is neither in "
            f"{facts.namespace} nor in {place}: pods there do not get it",
            remedy=f"{_making_template(name, place)}  # or leave out default-pod-template-name; if each "
            "project has one, use its namespace with --namespace",
        )


def _making_template(name: str, namespace: str) -> str:
    """Return a command that creates a PodTemplate without any effect."""
    manifest = (
        f"{{apiVersion: v1, kind: PodTemplate, metadata: {{name: {name}, namespace: {namespace}}}, "
        "template: {spec: {containers: [{name: default, image: none}]}}}"
    )
    return f"echo '{manifest}' | kubectl apply -f -"


def _is_gone(facts: Facts, name: str, place: str) -> bool:
    """True if the template has a name, but is neither in the namespace nor in `place`."""
    there = {
        (text(section(each, "metadata"), "namespace"), text(section(each, "metadata"), "name"))
        for each in facts.of(Subject.TEMPLATES)
    }
    return bool(name) and not {(facts.namespace, name), (place, name)} & there


def _refused(facts: Facts) -> Iterator[Found]:
    reply = facts.job_reply
    if reply.message and not _is_told(reply, facts):
        yield Found(
            sentence=f"the cluster refuses the job ({reply.reason}): {reply.message}",
            remedy="change what the message names in the task, its PodTemplate or the settings; the command "
            "render prints the job",
        )


def _pod_refused(facts: Facts) -> Iterator[Found]:
    for role, reply in facts.pod_replies.items():
        if reply.message and not _is_told(reply, facts):
            yield Found(
                sentence=f"the cluster refuses a {role} pod ({reply.reason}): {reply.message}",
                remedy="change what the message names in the task, its PodTemplate or the settings; the "
                "command render prints the pod's template",
            )


def _is_told(reply: Reply, facts: Facts) -> bool:
    """True if another check explains the rejection."""
    return any(
        words in reply.message and subject not in facts.unseen for words, subject in _ELSEWHERE.items()
    )


def _changed(facts: Facts) -> Iterator[Found]:
    if facts.task.job is not None and facts.job_reply.stored is not None:
        yield from _told("job", _differences(facts.task.job, facts.job_reply.stored))


def _pod_changed(facts: Facts) -> Iterator[Found]:
    for role in facts.task.roles:
        stored = facts.pod_replies[role.name].stored if role.name in facts.pod_replies else None
        if stored is not None:
            differing = [*_differences(role.pod, stored), *_taken_over(role.pod, stored)]
            yield from _told(f"{role.name} pod", differing)


def _taken_over(sent: Manifest, stored: Manifest) -> Iterator[str]:
    """Yield additions with an effect: a scheduler name, or resources of a container."""
    scheduler = text(section(stored, "spec"), "schedulerName")
    if not text(section(sent, "spec"), "schedulerName") and scheduler not in ("", _DEFAULT):
        yield f"spec.schedulerName is {scheduler!r}, which the job does not set"
    for part in ("initContainers", "containers"):
        asked = {text(each, "name"): _asked(each) for each in entries(section(sent, "spec"), part)}
        for each in entries(section(stored, "spec"), part):
            added = sorted(_asked(each) - asked.get(text(each, "name"), _asked(each)))
            if added:
                yield f"spec.{part}[{text(each, 'name')}] requests {added[0]}, which the job does not set"


def _asked(container: Manifest) -> set[str]:
    resources = section(container, "resources")
    return {*section(resources, "requests"), *section(resources, "limits")}


def _told(what: str, differing: Sequence[str]) -> Iterator[Found]:
    if differing:
        more = f", and {len(differing) - _MANY} more" if len(differing) > _MANY else ""
        yield Found(
            sentence=f"the cluster changes the {what} before it is stored: "
            f"{', '.join(differing[:_MANY])}{more}",
            remedy="kubectl get mutatingwebhookconfigurations,limitranges -A"
            "  # set the same in the settings, or exempt these pods",
        )


def _differences(sent: Manifest, stored: Manifest) -> Sequence[str]:
    """Return the changed fields; fields that the cluster only adds, such as defaults, are not included."""
    return [
        each
        for part in _KEPT
        for each in _compared(section(sent, *part.split(".")), section(stored, *part.split(".")), part)
    ]


def _compared(sent: JsonValue, stored: JsonValue, path: str) -> Iterator[str]:
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        for key, value in sent.items():
            yield from _compared(value, stored.get(key), f"{path}.{key}")
    elif isinstance(sent, list | tuple) and isinstance(stored, list | tuple):
        yield from _listed(sent, stored, path)
    elif _is_said(sent) and not _is_same(sent, stored):
        yield f"{path} is {stored!r} instead of {sent!r}"


def _listed(sent: Sequence[JsonValue], stored: Sequence[JsonValue], path: str) -> Iterator[str]:
    """Compare named items by name, because the cluster may insert others before them."""
    named = {text(each, "name"): each for each in stored if isinstance(each, Mapping)}
    for at, each in enumerate(sent):
        name = text(each, "name") if isinstance(each, Mapping) else ""
        if name:
            yield from _compared(each, named.get(name), f"{path}[{name}]")
        elif each not in stored:
            yield from _compared(each, stored[at] if at < len(stored) else None, f"{path}[{at}]")


def _is_said(value: JsonValue) -> bool:
    """True for a value that the API server does not omit as empty."""
    return value not in (None, "", 0, False) and value != {} and value != []


def _is_same(sent: JsonValue, stored: JsonValue) -> bool:
    """True for equal values; quantities are normalized by the API server: ``1024Mi`` to ``1Gi``."""
    from backend_plugin.core.quantity import NotAQuantity, parse

    if sent == stored:
        return True
    try:
        return parse(str(sent)) == parse(str(stored))
    except NotAQuantity:
        return False


CHECKS: Final = (
    Check(
        id="task-refused",
        level=Level.ERROR,
        proves="the task can be planned on this platform",
        judge=_refused_here,
    ),
    Check(
        id="template-missing",
        level=Level.ERROR,
        proves="the PodTemplate that the settings name exists",
        judge=_no_template,
        needs=(Subject.TEMPLATES,),
    ),
    Check(
        id="template-unmade",
        level=Level.WARNING,
        proves="the PodTemplate that Flyte's configuration names exists",
        judge=_unmade_template,
        needs=(Subject.TEMPLATES, Subject.FLYTE_CONFIG),
    ),
    Check(
        id="job-refused",
        level=Level.ERROR,
        proves="the cluster accepts the job in a dry run",
        judge=_refused,
        needs=(Subject.JOB_TRIAL, Subject.JOB_KINDS),
    ),
    Check(
        id="pod-refused",
        level=Level.ERROR,
        proves="the cluster accepts a pod of each role in a dry run",
        judge=_pod_refused,
        needs=(Subject.POD_TRIALS,),
    ),
    Check(
        id="job-changed",
        level=Level.WARNING,
        proves="the cluster stores the job unchanged",
        judge=_changed,
        needs=(Subject.JOB_TRIAL,),
    ),
    Check(
        id="pod-changed",
        level=Level.WARNING,
        proves="the cluster stores the pods unchanged",
        judge=_pod_changed,
        needs=(Subject.POD_TRIALS,),
    ),
)
