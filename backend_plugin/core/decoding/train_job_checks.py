"""Validation of the options of a TrainJob: its data set, model and storage, and its policies for nodes."""

from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import build_problem, check_choice, select_problems
from backend_plugin.core.train_job_options import DISRUPTION, PodFailureRule, TrainJobOptions
from kfpytorch_common import data_sources, labels
from kfpytorch_common.completion_indexes import FORMAT, contains_index, parse_indexes
from kfpytorch_common.quantity import InvalidQuantity, parse
from kfpytorch_idl.v1 import task_pb2

_PATH: Final = "custom.kfpytorch.trainJob"
_ACTIONS: Final = ("FailJob", "Ignore", "Count")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("True", "False", "Unknown")
_MOST_RULES: Final = 19
"""The maximum number of pod failure rules of a task: a Job has at most 20, and the backend adds one for
disruptions."""


def check_sources(options: task_pb2.TrainJob, path: str) -> Iterator[Problem]:
    """Yield a problem for each invalid field of the data set, model and storage in `options`, at `path`."""
    sources = [kind for kind in data_sources.PATHS if options.HasField(kind)]
    for kind in sources:
        yield from _check_source(getattr(options, kind), kind, f"{path}.{kind}", named=bool(options.runtime))
    yield from _check_storage(options, f"{path}.storage", used=bool(sources))


def check_name(name: str, path: str, what: str) -> Iterator[Problem]:
    """Yield a problem if `name` is not a valid object name; `what` describes the object in the message."""
    if not labels.is_subdomain(name):
        yield build_problem(path, name, f"is not the name of {what}", f"write {labels.SUBDOMAIN}")


def _check_source(source: task_pb2.DataSource, kind: str, path: str, *, named: bool) -> Iterator[Problem]:
    at = f"{path}.uri"
    if remedy := data_sources.find_uri_remedy(kind, source.uri):
        yield build_problem(at, source.uri, "is not the URI of a source that can be loaded", remedy)
    elif source.uri.startswith(data_sources.CACHE_SCHEME) and not named:
        yield build_problem(at, source.uri, data_sources.CACHE_REFUSAL, data_sources.CACHE_REMEDY)
    if source.secret:
        yield from check_name(source.secret, f"{path}.secret", "a Secret")
    yield from _check_variables(source.env, f"{path}.env")


def _check_variables(env: Mapping[str, str], path: str) -> Iterator[Problem]:
    if len(env) >= data_sources.MOST_VARIABLES:
        fewer = f"write at most {data_sources.MOST_VARIABLES - 1}"
        yield build_problem(path, len(env), "variables are more than Trainer accepts", fewer)
    for name, value in sorted(env.items()):
        if remedy := data_sources.find_variable_remedy(name, value):
            # The value may be a credential.
            yield build_problem(path, name, "is not a variable that an initializer can have", remedy)


def _check_storage(options: task_pb2.TrainJob, path: str, *, used: bool) -> Iterator[Problem]:
    if not options.HasField("storage"):
        if used and not options.runtime:
            message = "is missing, and the data set and the model need a volume"
            yield build_problem(path, None, message, "write a size or the name of a claim")
    elif options.runtime:
        yield build_problem(path, "{...}", "belongs to the named runtime", "leave it out")
    elif not used:
        yield build_problem(path, "{...}", "has no data set or model", "leave it out")
    else:
        yield from _check_volume(options.storage, path)


def _check_volume(storage: task_pb2.Storage, path: str) -> Iterator[Problem]:
    for key, name in (("claim", storage.claim), ("storageClass", storage.storage_class)):
        if name:
            yield from check_name(name, f"{path}.{key}", "an object")
    size, claim, name = storage.size, storage.claim, storage.storage_class
    is_ambiguous = bool(claim) == bool(size)
    is_invalid = bool(size) and not claim and not _is_size(size)
    either, one = "must be set, unless a claim exists", "write one of size and claim"
    yield from select_problems(
        (is_ambiguous, f"{path}.size", size, either, one),
        (is_invalid, f"{path}.size", size, "is not a size", "write a quantity such as 50Gi"),
        (bool(claim and name), f"{path}.storageClass", name, "is fixed by the claim", "leave it out"),
    )


def _is_size(text: str) -> bool:
    try:
        return parse(text).nano > 0
    except InvalidQuantity:
        return False


def check_policies(options: TrainJobOptions, nodes: int, *, elastic: bool) -> Iterator[Problem]:
    """Yield a problem for an invalid success policy, each invalid pod failure rule, and too many rules."""
    if options.succeeded_indexes is not None:
        yield from _check_indexes(options.succeeded_indexes, nodes, elastic=elastic)
    rules, path = options.pod_failure_rules, f"{_PATH}.podFailurePolicy"
    if len(rules) > _MOST_RULES:
        remedy = f"write at most {_MOST_RULES}"
        yield Problem(field=path, value=f"{len(rules)} rules", message="has too many rules", remedy=remedy)
    for index, rule in enumerate(rules):
        yield from _check_rule(rule, f"{path}[{index}]")


def _check_indexes(text: str, nodes: int, *, elastic: bool) -> Iterator[Problem]:
    ranges = parse_indexes(text)
    if elastic:
        message, remedy = "names nodes, and rank 0 of an elastic job may be on any node", "leave it out"
    elif ranges is None:
        message, remedy = "is not a set of indexes", f"write {FORMAT}"
    elif not contains_index(text, 0):
        message, remedy = "is without the node that writes the outputs", "add 0"
    elif ranges[-1].stop > nodes:
        message = f"names a node that the job with {nodes} nodes does not have"
        remedy = f"write less than {nodes}"
    else:
        return
    yield build_problem(f"{_PATH}.successPolicy.succeededIndexes", text, message, remedy)


def _check_rule(rule: PodFailureRule, path: str) -> Iterator[Problem]:
    codes, at = [*rule.exit_codes], f"{path}.exitCodes"
    is_unclear = bool(codes) is bool(rule.pod_conditions)
    are_wrong = not all(0 < code < 256 for code in codes)
    either = "must be set if podConditions are not, and only then"
    yield from check_choice(rule.action, _ACTIONS, f"{path}.action")
    yield from check_choice(rule.operator, _OPERATORS, f"{path}.operator")
    yield from select_problems(
        (is_unclear, at, codes, either, "write either exitCodes or podConditions"),
        (are_wrong, at, codes, "are not all exit codes of a failure", "write 1 to 255"),
    )
    for name, status in rule.pod_conditions.items():
        at = f"{path}.podConditions"
        if name == DISRUPTION:
            remedy = "leave it out: a disruption restarts all nodes"
            yield build_problem(at, name, "has a rule that comes before all others", remedy)
        elif status not in _STATUSES:
            remedy = f"write one of {', '.join(_STATUSES)}"
            yield build_problem(f"{at}.{name}", status, "is not a status", remedy)
