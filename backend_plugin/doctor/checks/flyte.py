"""Checks of Flyte: its configuration for this connector, and whether that connector is reachable."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.names import TASK_TYPE
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest
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
_REPLACED: Final = "CANCELLED"
"""The status of calls that arrive after a server has sent GOAWAY and before its client has received it."""
_ENDPOINT: Final = re.compile(
    r"(?:dns:///|k8s://)?(?P<service>[a-z0-9-]{1,63})\.(?P<namespace>[a-z0-9-]{1,63})(?:\.svc(?:\.[a-z0-9.-]{1,253})?)?:(?P<port>\d{1,5})"
)


def _get_config_section(facts: Facts, *keys: str) -> Manifest:
    """Return a section of Flyte's configuration, merged from all files; later files take precedence."""
    section: dict[str, JsonValue] = {}
    for document in facts.get_objects(Subject.FLYTE_CONFIG):
        section.update(get_mapping(document, *keys))
    return section


def _has_flyte_config(facts: Facts) -> bool:
    return bool(_get_config_section(facts, "tasks", "task-plugins"))


def _list_enabled_plugins(facts: Facts) -> set[str]:
    plugins = _get_config_section(facts, "tasks", "task-plugins").get("enabled-plugins")
    return {each for each in plugins if isinstance(each, str)} if isinstance(plugins, list | tuple) else set()


def _get_routes(facts: Facts) -> Mapping[str, str]:
    """Return Flyte's plugin for each task type, from the setting `default-for-task-types`.

    The setting is a mapping, or a list of mappings as in Flyte's documentation.
    """
    plugins = _get_config_section(facts, "tasks", "task-plugins")
    key = "default-for-task-types"
    listed = get_mappings(plugins, key) or [get_mapping(plugins, key)]
    return {key: value for each in listed for key, value in each.items() if isinstance(value, str)}


def get_template_name(facts: Facts) -> str:
    """Return the name of FlytePropeller's default PodTemplate, or an empty string."""
    return get_text(_get_config_section(facts, "plugins", "k8s"), "default-pod-template-name")


CHECKS: Final = CheckList()


@CHECKS.add(Subject.FLYTE_CONFIG)
def _check_flyte_route(facts: Facts) -> Iterator[Violation]:
    """Flyte sends tasks of type pytorch to connectors."""
    if not _has_flyte_config(facts):
        return
    plugin = _get_routes(facts).get(TASK_TYPE, "")
    if plugin not in _PLUGINS:
        target = f"go to the plugin {plugin}" if plugin else "are routed to no plugin"
        yield Violation(
            sentence=f"in the configuration of Flyte, tasks of type {TASK_TYPE} {target}, not to "
            "connector-service",
            remedy=_ROUTE,
        )
    elif plugin not in _list_enabled_plugins(facts):
        yield Violation(
            sentence=f"tasks of type {TASK_TYPE} are routed to {plugin}, which is not among Flyte's "
            f"enabled-plugins",
            remedy=_ROUTE,
        )


def _iter_connectors(facts: Facts) -> Iterator[tuple[str, Manifest]]:
    """Yield the path and the content of each connector in Flyte's configuration."""
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
    """Flyte's configuration contains a connector."""
    is_routed = _get_routes(facts).get(TASK_TYPE) in _PLUGINS
    if is_routed and not any(_iter_connectors(facts)):
        yield Violation(
            sentence="Flyte has no connector: plugins.connector-service.defaultConnector "
            "contains no endpoint",
            remedy="write plugins: {connector-service: {defaultConnector: {insecure: true, endpoint: "
            f"'dns:///kfpytorch-backend.{facts.flyte_namespace}.svc.cluster.local:8000'}}}}}}",
        )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_timeouts(facts: Facts) -> Iterator[Violation]:
    """Flyte uses the configured timeouts."""
    for path, config in _iter_connectors(facts):
        for method in get_mapping(config, "timeouts"):
            yield Violation(
                sentence=f"Flyte ignores {path}.timeouts.{method}: keys are read in lower case, but "
                f"method names are not",
                remedy="write defaultTimeout: 60s  # or the longest of the timeouts, instead of timeouts",
            )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_names(facts: Facts) -> Iterator[Violation]:
    """Flyte finds connectors by their configured names."""
    for path, _ in _iter_connectors(facts):
        name = path.rpartition(".")[2]
        if name != name.lower() and name not in ("defaultConnector", "defaultAgent"):
            yield Violation(
                sentence=f"Flyte reads the name of the connector {path} in lower case, so "
                f"references to it do not match",
                remedy=f"write {name.lower()}",
            )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_retries(facts: Facts) -> Iterator[Violation]:
    """Flyte waits for a connector that is unavailable for a moment."""
    for path, connector in _iter_connectors(facts):
        config = get_text(connector, "defaultServiceConfig")
        if "waitForReady" not in config:
            yield Violation(
                sentence=f"{path} has no defaultServiceConfig with waitForReady: workflows fail if "
                "the connector is unavailable for a moment",
                remedy=_CONFIG,
            )
        elif _REPLACED not in config:
            yield Violation(
                sentence=f"{path} has a defaultServiceConfig without {_REPLACED}: a task fails if its "
                "call arrives while a connector is replaced",
                remedy=_CONFIG,
            )


@CHECKS.add(Subject.FLYTE_CONFIG, level=Severity.WARNING)
def _check_flyte_timeout(facts: Facts) -> Iterator[Violation]:
    """Flyte has a timeout for each call."""
    for path, connector in _iter_connectors(facts):
        if not get_text(connector, "defaultTimeout"):
            yield Violation(
                sentence=f"{path} has no defaultTimeout: Flyte waits without limit if a call is lost",
                remedy="write defaultTimeout: 60s",
            )


def _iter_endpoints(facts: Facts) -> Iterator[tuple[str, re.Match[str], Manifest | None]]:
    """Yield the path, the endpoint and the Service (or None) of each connector in Flyte's namespace."""
    for path, config in _iter_connectors(facts):
        endpoint = _ENDPOINT.fullmatch(get_text(config, "endpoint"))
        if endpoint is not None and endpoint["namespace"] == facts.flyte_namespace:
            services = facts.get_objects(Subject.SERVICES)
            yield path, endpoint, deployments.find_by_name(services, endpoint["service"])


@CHECKS.add(Subject.FLYTE_CONFIG, Subject.SERVICES)
def _check_connector_service(facts: Facts) -> Iterator[Violation]:
    """The Service and the port of the connector in Flyte's configuration exist."""
    for path, endpoint, service in _iter_endpoints(facts):
        ports = [each.get("port") for each in get_mappings(service, "spec", "ports")]
        if int(endpoint["port"]) not in ports:
            what = f"has the ports {', '.join(map(str, ports))}" if service else "does not exist"
            yield Violation(
                sentence=f"{path}.endpoint is {endpoint[0]}, and the Service {endpoint['service']} {what}",
                remedy=f"kubectl get services -n {facts.flyte_namespace}  # write an existing endpoint",
            )


@CHECKS.add(Subject.FLYTE_CONFIG, Subject.SERVICES, Subject.ENDPOINTS)
def _check_connector_down(facts: Facts) -> Iterator[Violation]:
    """The Service of the connector has a ready pod."""
    for path, endpoint, service in _iter_endpoints(facts):
        name = endpoint["service"]
        slices = [
            each
            for each in facts.get_objects(Subject.ENDPOINTS)
            if get_text(each, "metadata", "labels", "kubernetes.io/service-name") == name
        ]
        if service and not deployments.has_ready_endpoint(slices):
            yield Violation(
                sentence=f"{path}.endpoint is the Service {name}, behind which no pod is ready",
                remedy=f"kubectl get pods -n {facts.flyte_namespace}; kubectl describe service {name} "
                f"-n {facts.flyte_namespace}",
            )


@CHECKS.add(Subject.CONNECTOR)
def _check_connector_unreachable(facts: Facts) -> Iterator[Violation]:
    """The connector of --connector answers, and serves tasks of type pytorch."""
    if facts.connector is not None and facts.connector.trouble:
        yield Violation(
            sentence=f"the connector at {facts.connector.what} {facts.connector.trouble}",
            remedy=facts.connector.remedy,
        )
