"""The policies of a TrainJob for the success and the failure of its nodes."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Final

from flytekitplugins.kfpytorch import validators
from flytekitplugins.kfpytorch.config_base import ConfigPart, build_config_reader
from flytekitplugins.kfpytorch.problems import ConfigProblem, build_invalid_value
from kfpytorch_common import labels
from kfpytorch_common.completion_indexes import FORMAT, contains_index, parse_indexes


def _read_indexes(value: object) -> object:
    if not isinstance(value, str) or parse_indexes(value) is None:
        raise build_invalid_value(value, f"must be {FORMAT}")
    if not contains_index(value, 0):
        raise build_invalid_value(value, "must contain 0: the first node writes the outputs of the task")
    return value


@dataclass(kw_only=True)
class SuccessPolicy(ConfigPart):
    """The nodes that must succeed so that a TrainJob succeeds.

    The backend writes ``succeeded_indexes`` into ``successPolicy`` of the Kubernetes Job that runs all nodes.
    When all nodes in ``succeeded_indexes`` have succeeded, the other nodes are stopped, and their failures
    no longer count. Without a policy, all nodes must succeed. In a local run, the policy has no effect.

    Args:
        succeeded_indexes: The indexes of the nodes that must succeed, such as ``"0"`` or ``"0,2-4"``. The
            index 0 must be included, because the first node writes the outputs of the task.
    """

    succeeded_indexes: Annotated[str, _read_indexes] = "0"


def _read_exit_codes(value: object) -> object:
    if not validators.is_list(value) or not all(type(code) is int and 0 < code < 256 for code in value):
        raise build_invalid_value(value, "must be a list of exit codes from 1 to 255, such as [42]")
    return sorted(set(value))


def _check_pod_condition(kind: object, status: object) -> Iterator[ConfigProblem]:
    if kind == "DisruptionTarget":
        yield ConfigProblem("", status, "has a rule that comes before all others; leave it out")
    elif not isinstance(kind, str) or status not in ("True", "False", "Unknown"):
        yield ConfigProblem("", status, "must be 'True' or 'False' or 'Unknown', with the type as key")


_read_pod_conditions: Final = validators.build_mapping_reader(
    _check_pod_condition, "must be a dict of conditions such as {'ConfigIssue': 'True'}"
)


@dataclass(kw_only=True)
class PodFailurePolicyRule(ConfigPart):
    """A rule for failed pods of a TrainJob: the kind of failure, and its effect on the job.

    The backend writes the rule into ``podFailurePolicy`` of the Kubernetes Job that runs all nodes.

    A rule has either exit codes or pod conditions. The first rule that matches the failed pod applies. The
    backend adds a rule before yours, for the loss of a pod to a disruption. The added rule restarts all
    nodes. In an `Elastic` task with a range of nodes, it replaces only the lost pod.

    Args:
        action: ``"FailJob"`` fails the task without a restart of its nodes. ``"Ignore"`` replaces only the
            failed pod, and the failure does not use up a restart. ``"Count"`` restarts all nodes if a restart
            is left, as without a rule.
        exit_codes: Exit codes of the training container.
        operator: ``"In"`` matches the ``exit_codes``. ``"NotIn"`` matches all other exit codes except 0.
        pod_conditions: Types of pod conditions, each with the status that matches, such as ``{"ConfigIssue":
            "True"}``.
    """

    action: Annotated[str, validators.build_choice_reader("FailJob", "Ignore", "Count")]
    exit_codes: Annotated[Sequence[int] | None, _read_exit_codes] = None
    operator: Annotated[str, validators.build_choice_reader("In", "NotIn")] = "In"
    pod_conditions: Annotated[Mapping[str, str] | None, _read_pod_conditions] = None

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        if not {"exit_codes", "pod_conditions"} <= sound:
            return
        if bool(self.exit_codes) is bool(self.pod_conditions):
            yield ConfigProblem("exit_codes", self.exit_codes, "set either exit_codes or pod_conditions")


_read_level: Final = validators.build_check_reader(
    lambda value: isinstance(value, str) and labels.is_key(value),
    f"must be the name of a label of nodes: {labels.KEY}",
)


@dataclass(kw_only=True)
class Topology(ConfigPart):
    """The placement of all nodes of a TrainJob in one domain, such as a rack or a block.

    Args:
        level: The label of Kubernetes nodes whose value is the name of their domain, such as
            ``"topology.kubernetes.io/zone"``.
        mode: ``"exclusive"``: JobSet gives the nodes a domain without other jobs of this mode.
            ``"required"`` and ``"preferred"``: Kueue admits the job to one domain, or to as few as possible.
            Default: ``"required"`` in a queue of Kueue, otherwise ``"exclusive"``.
    """

    level: Annotated[str, _read_level]
    mode: Annotated[str | None, validators.build_choice_reader("exclusive", "required", "preferred")] = None


read_pod_failure_policy: Final = validators.build_list_reader(
    build_config_reader(PodFailurePolicyRule), "must be a list of PodFailurePolicyRule(...)"
)
