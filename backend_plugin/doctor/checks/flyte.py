"""Checks of Flyte: its version, and its configuration for this connector."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.names import TASK_TYPE
from backend_plugin.core.reading import get_mapping, get_text, get_texts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

_PLUGINS: Final = ("connector-service", "agent-service")
_ROUTE: Final = (
    "write tasks: {task-plugins: {enabled-plugins: [container, sidecar, k8s-array, connector-service, echo], "
    f"default-for-task-types: {{{TASK_TYPE}: connector-service}}}}}}"
)
_CONFIG: Final = (
    "write defaultServiceConfig: "
    '\'{"methodConfig":[{"name":[{}],"waitForReady":true,"retryPolicy":{"maxAttempts":5,'
    '"initialBackoff":"0.5s","maxBackoff":"3s","backoffMultiplier":2,'
    '"retryableStatusCodes":["UNAVAILABLE","CANCELLED"]}}]}\''
)
_OLDEST: Final = (1, 16, 7)
"""The oldest supported version of Flyte. Earlier ones do not replace ``{{.input}}`` in pod arguments."""


def _get_config_section(facts: Facts, *keys: str) -> Manifest:
    """Return a section of Flyte's configuration, merged from all files; later files take precedence."""
    sections = [get_mapping(document, *keys) for document in facts.get_objects(Subject.FLYTE_CONFIG)]
    return {key: value for section in sections for key, value in section.items()}


def _find_plugin(facts: Facts) -> str:
    """Return the name of Flyte's plugin for tasks of type `pytorch`; empty if none is configured.

    The setting `default-for-task-types` is a mapping, or a list of mappings as in Flyte's documentation.
    """
    routes = _get_config_section(facts, "tasks", "task-plugins").get("default-for-task-types")
    listed = [get_text(each, TASK_TYPE) for each in (routes if isinstance(routes, list) else [routes])]
    return next(filter(None, reversed(listed)), "")


CHECKS: Final = CheckList()


@CHECKS.add(Subject.FLYTE_CONFIG)
def _check_flyte_route(facts: Facts) -> Iterator[Violation]:
    """Check that Flyte sends tasks of type pytorch to connectors."""
    plugins, plugin = _get_config_section(facts, "tasks", "task-plugins"), _find_plugin(facts)
    if not plugins:
        return
    if plugin not in _PLUGINS:
        target = f"go to the plugin {plugin}" if plugin else "are routed to no plugin"
        yield Violation(
            f"in the configuration of Flyte, tasks of type {TASK_TYPE} {target}, not to connector-service",
            _ROUTE,
        )
    elif plugin not in get_texts(plugins, "enabled-plugins"):
        yield Violation(
            f"tasks of type {TASK_TYPE} are routed to {plugin}, which is not among Flyte's enabled-plugins",
            _ROUTE,
        )


def iter_connectors(facts: Facts) -> Iterator[tuple[str, Manifest]]:
    """Yield each connector in Flyte's configuration: the dotted path of its section, and the section."""
    for plugin in _PLUGINS:
        section = _get_config_section(facts, "plugins", plugin)
        for key in ("defaultConnector", "defaultAgent"):
            if key in section:
                yield f"plugins.{plugin}.{key}", get_mapping(section, key)
        for key in ("connectors", "agents"):
            for name in get_mapping(section, key):
                yield f"plugins.{plugin}.{key}.{name}", get_mapping(section, key, name)


@CHECKS.add(Subject.FLYTE_CONFIG)
def _check_flyte_connector(facts: Facts) -> Iterator[Violation]:
    """Check that Flyte's configuration contains the endpoint of a connector."""
    endpoints = [get_text(connector, "endpoint") for _, connector in iter_connectors(facts)]
    if _find_plugin(facts) in _PLUGINS and not any(endpoints):
        yield Violation(
            "Flyte has no connector: plugins.connector-service.defaultConnector contains no endpoint",
            "write plugins: {connector-service: {defaultConnector: {insecure: true, endpoint: "
            f"'dns:///kfpytorch-backend.{facts.flyte_namespace}.svc.cluster.local:8000'}}}}}}",
        )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_timeouts(facts: Facts) -> Iterator[Violation]:
    """Check that connectors in Flyte's configuration set no `timeouts`, which Flyte ignores."""
    for path, config in iter_connectors(facts):
        for method in get_mapping(config, "timeouts"):
            yield Violation(
                f"Flyte ignores {path}.timeouts.{method}: keys are read in lower case, but method names are "
                "not",
                "write defaultTimeout: 60s  # or the longest of the timeouts, instead of timeouts",
            )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_names(facts: Facts) -> Iterator[Violation]:
    """Check that connectors in Flyte's configuration have lower-case names: Flyte changes other names."""
    for path, _ in iter_connectors(facts):
        name = path.rpartition(".")[2]
        if name != name.lower() and name not in ("defaultConnector", "defaultAgent"):
            yield Violation(
                f"Flyte reads the name of the connector {path} in lower case, so references to it do not "
                "match",
                f"write {name.lower()}",
            )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_retries(facts: Facts) -> Iterator[Violation]:
    """Check that Flyte waits for an unavailable connector, and retries a call during its replacement."""
    for path, connector in iter_connectors(facts):
        config = get_text(connector, "defaultServiceConfig")
        if "waitForReady" not in config:
            yield Violation(
                f"{path} has no defaultServiceConfig with waitForReady: workflows fail if the connector is "
                "unavailable for a moment",
                _CONFIG,
            )
        # Calls get this status between the server's GOAWAY and its arrival at the client.
        elif "CANCELLED" not in config:
            yield Violation(
                f"{path} has a defaultServiceConfig without CANCELLED: a task fails if its call arrives "
                "while a connector is replaced",
                _CONFIG,
            )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_timeout(facts: Facts) -> Iterator[Violation]:
    """Check that connectors in Flyte's configuration have a `defaultTimeout`, which limits each call."""
    for path, connector in iter_connectors(facts):
        if not get_text(connector, "defaultTimeout"):
            yield Violation(
                f"{path} has no defaultTimeout: Flyte waits without limit if a call is lost",
                "write defaultTimeout: 60s",
            )


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_flyte_outdated(facts: Facts) -> Iterator[Violation]:
    """Check that Flyte is 1.16.7 or newer."""
    for each in deployments.list_propellers(facts):
        version = deployments.find_flyte_version(each)
        if version is not None and version < _OLDEST:
            release = get_text(each, "metadata", "annotations", "meta.helm.sh/release-name") or "flyte"
            chart = "flyte-binary" if deployments.has_program(each, "flyte-binary") else "flyte-core"
            yield Violation(
                f"Flyte is {deployments.format_version(version)}, and a connector needs 1.16.7 or newer, "
                f"which fills in the arguments of all tasks: {deployments.format_kubectl_name(each)}",
                f"helm upgrade {release} {chart} --repo https://flyteorg.github.io/flyte -n "
                f"{deployments.get_namespace(each)} --version v1.16.8 --reuse-values",
            )
