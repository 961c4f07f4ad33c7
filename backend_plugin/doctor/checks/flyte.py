"""Checks of Flyte: its configuration for this connector, and whether that connector is reachable."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject

_PLUGINS: Final = ("connector-service", "agent-service")
_TYPE: Final = "pytorch"
_ROUTE: Final = (
    "write tasks: {task-plugins: {enabled-plugins: [container, sidecar, k8s-array, connector-service, echo], "
    "default-for-task-types: {pytorch: connector-service}}}"
)
_CONFIG: Final = (
    "write defaultServiceConfig: "
    '\'{"methodConfig":[{"name":[{}],"waitForReady":true,"retryPolicy":{"maxAttempts":5,'
    '"initialBackoff":"0.5s","maxBackoff":"3s","backoffMultiplier":2,'
    '"retryableStatusCodes":["UNAVAILABLE","CANCELLED"]}}]}\''
)
_REPLACED: Final = "CANCELLED"
"""The status of calls that arrive after a server has sent GOAWAY and before its client has received it."""
_OLDEST: Final = (1, 16, 7)
"""Before 1.16.7 connectors receive pods with placeholders; before 1.16 their settings have another name."""
_ENDPOINT: Final = re.compile(
    r"(?:dns:///|k8s://)?(?P<service>[a-z0-9-]{1,63})\.(?P<namespace>[a-z0-9-]{1,63})(?:\.svc(?:\.[a-z0-9.-]{1,253})?)?:(?P<port>\d{1,5})"
)


def _said(facts: Facts, *keys: str) -> Manifest:
    """Return a section of Flyte's configuration, merged from all files; later files take precedence."""
    found: dict[str, JsonValue] = {}
    for document in facts.of(Subject.FLYTE_CONFIG):
        found.update(section(document, *keys))
    return found


def _is_flyte(facts: Facts) -> bool:
    return bool(_said(facts, "tasks", "task-plugins"))


def _enabled(facts: Facts) -> set[str]:
    said = _said(facts, "tasks", "task-plugins").get("enabled-plugins")
    return {each for each in said if isinstance(each, str)} if isinstance(said, list | tuple) else set()


def _routes(facts: Facts) -> Mapping[str, str]:
    """Return the plugin by task type; the setting is a mapping, or a list of mappings as in Flyte's guide."""
    plugins = _said(facts, "tasks", "task-plugins")
    listed = entries(plugins, "default-for-task-types") or [section(plugins, "default-for-task-types")]
    return {key: value for each in listed for key, value in each.items() if isinstance(value, str)}


def template_name(facts: Facts) -> str:
    """Return FlytePropeller's default PodTemplate, or an empty string."""
    return text(_said(facts, "plugins", "k8s"), "default-pod-template-name")


def _unrouted(facts: Facts) -> Iterator[Found]:
    if not _is_flyte(facts):
        return
    plugin = _routes(facts).get(_TYPE, "")
    if plugin not in _PLUGINS:
        whom = f"go to the plugin {plugin}" if plugin else "are routed to no plugin"
        yield Found(
            sentence=f"in the configuration of Flyte, tasks of type pytorch {whom}, not to connector-service",
            remedy=_ROUTE,
        )
    elif plugin not in _enabled(facts):
        yield Found(
            sentence=f"tasks of type pytorch are routed to {plugin}, which is not among Flyte's "
            f"enabled-plugins",
            remedy=_ROUTE,
        )


def _connectors(facts: Facts) -> Iterator[tuple[str, Manifest]]:
    """Yield the configuration of each connector with its path."""
    for plugin in _PLUGINS:
        said = _said(facts, "plugins", plugin)
        for key in ("defaultConnector", "defaultAgent"):
            if key in said:
                yield f"plugins.{plugin}.{key}", section(said, key)
        for key in ("connectors", "agents"):
            for name in section(said, key):
                yield f"plugins.{plugin}.{key}.{name}", section(said, key, name)


def _no_connector(facts: Facts) -> Iterator[Found]:
    if _is_flyte(facts) and _routes(facts).get(_TYPE) in _PLUGINS and not any(_connectors(facts)):
        yield Found(
            sentence="Flyte has no connector: plugins.connector-service.defaultConnector "
            "contains no endpoint",
            remedy="write plugins: {connector-service: {defaultConnector: {insecure: true, endpoint: "
            f"'dns:///kfpytorch-backend.{facts.flyte_namespace}.svc.cluster.local:8000'}}}}}}",
        )


def _ignored(facts: Facts) -> Iterator[Found]:
    for path, said in _connectors(facts):
        for method in section(said, "timeouts"):
            yield Found(
                sentence=f"Flyte ignores {path}.timeouts.{method}: keys are read in lower case, but "
                f"method names are not",
                remedy="write defaultTimeout: 60s  # or the longest of the timeouts, instead of timeouts",
            )


def _upper(facts: Facts) -> Iterator[Found]:
    for path, _ in _connectors(facts):
        name = path.rpartition(".")[2]
        if name != name.lower() and name not in ("defaultConnector", "defaultAgent"):
            yield Found(
                sentence=f"Flyte reads the name of the connector {path} in lower case, so "
                f"references to it do not match",
                remedy=f"write {name.lower()}",
            )


def _hasty(facts: Facts) -> Iterator[Found]:
    for path, said in _connectors(facts):
        config = text(said, "defaultServiceConfig")
        if "waitForReady" not in config:
            yield Found(
                sentence=f"{path} has no defaultServiceConfig with waitForReady: workflows fail if "
                "the connector is unavailable for a moment",
                remedy=_CONFIG,
            )
        elif _REPLACED not in config:
            yield Found(
                sentence=f"{path} has a defaultServiceConfig without {_REPLACED}: a task fails if its "
                "call arrives while a connector is replaced",
                remedy=_CONFIG,
            )


def _no_timeout(facts: Facts) -> Iterator[Found]:
    for path, said in _connectors(facts):
        if not text(said, "defaultTimeout"):
            yield Found(
                sentence=f"{path} has no defaultTimeout: Flyte waits without limit if a call is lost",
                remedy="write defaultTimeout: 60s",
            )


def _unserved(facts: Facts) -> Iterator[Found]:
    for path, said in _connectors(facts):
        found = _ENDPOINT.fullmatch(text(said, "endpoint"))
        if found is None or found["namespace"] != facts.flyte_namespace:
            continue
        name, port = found["service"], int(found["port"])
        services = [each for each in facts.of(Subject.SERVICES) if deployments.name(each) == name]
        ports = [each.get("port") for one in services for each in entries(section(one, "spec"), "ports")]
        if port not in ports:
            what = f"has the ports {', '.join(map(str, ports))}" if services else "does not exist"
            yield Found(
                sentence=f"{path}.endpoint is {text(said, 'endpoint')}, and the Service {name} {what}",
                remedy=f"kubectl get services -n {facts.flyte_namespace}  # write an existing endpoint",
            )


def _nobody(facts: Facts) -> Iterator[Found]:
    for path, said in _connectors(facts):
        found = _ENDPOINT.fullmatch(text(said, "endpoint"))
        if found is None or found["namespace"] != facts.flyte_namespace:
            continue
        service = found["service"]
        is_there = any(deployments.name(each) == service for each in facts.of(Subject.SERVICES))
        if is_there and not _ready(facts, service):
            yield Found(
                sentence=f"{path}.endpoint is the Service {service}, behind which no pod is ready",
                remedy=f"kubectl get pods -n {facts.flyte_namespace}; kubectl describe service {service} "
                f"-n {facts.flyte_namespace}",
            )


def _ready(facts: Facts, service: str) -> bool:
    slices = [
        each
        for each in facts.of(Subject.ENDPOINTS)
        if text(section(each, "metadata", "labels"), "kubernetes.io/service-name") == service
    ]
    return any(
        section(endpoint, "conditions").get("ready") is not False
        for each in slices
        for endpoint in entries(each, "endpoints")
    )


def _silent(facts: Facts) -> Iterator[Found]:
    if facts.connector is not None and facts.connector.trouble:
        yield Found(
            sentence=f"the connector at {facts.connector.what} {facts.connector.trouble}",
            remedy=facts.connector.remedy,
        )


def _old(facts: Facts) -> Iterator[Found]:
    for each in deployments.propellers(facts):
        version = deployments.flyte_version(each)
        if version is not None and version < _OLDEST:
            yield Found(
                sentence=f"Flyte is {'.'.join(map(str, version))}, and a connector needs 1.16.7 or newer, "
                f"which fills in the arguments of all tasks: {deployments.told(each)}",
                remedy=f"helm upgrade {_chart(each)} --repo https://flyteorg.github.io/flyte "
                f"-n {deployments.namespace(each)} --version v1.16.8 --reuse-values",
            )


def _of_no_version(facts: Facts) -> Iterator[Found]:
    for each in deployments.propellers(facts):
        if deployments.flyte_version(each) is None:
            yield Found(
                sentence=f"the version of Flyte is unknown; the image of {deployments.told(each)} is "
                f"{deployments.propeller_image(each)}; a connector needs 1.16.7 or newer",
                remedy=f"kubectl label {deployments.told(each)} --overwrite "
                "app.kubernetes.io/version=1.16.8  # if this is the version",
            )


def _chart(deployment: Manifest) -> str:
    """Return the name of the Helm release and of its chart."""
    metadata = section(deployment, "metadata")
    release = text(section(metadata, "annotations"), "meta.helm.sh/release-name")
    release = release or text(section(metadata, "labels"), "app.kubernetes.io/instance")
    whole = deployments.runs(deployment, "flyte-binary")
    return f"{release or 'flyte'} {'flyte-binary' if whole else 'flyte-core'}"


_CONFIGURED: Final = (Subject.FLYTE_CONFIG,)
CHECKS: Final = (
    Check(
        id="flyte-old",
        level=Level.WARNING,
        proves="Flyte is 1.16.7 or newer",
        judge=_old,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="flyte-version",
        level=Level.UNKNOWN,
        proves="the image or a label of Flyte contains its version",
        judge=_of_no_version,
        needs=(Subject.DEPLOYMENTS,),
    ),
    Check(
        id="flyte-route",
        level=Level.ERROR,
        proves="Flyte sends tasks of type pytorch to connectors",
        judge=_unrouted,
        needs=_CONFIGURED,
    ),
    Check(
        id="flyte-connector",
        level=Level.ERROR,
        proves="Flyte has the endpoint of the connector",
        judge=_no_connector,
        needs=_CONFIGURED,
    ),
    Check(
        id="flyte-timeouts",
        level=Level.WARNING,
        proves="Flyte uses the configured timeouts",
        judge=_ignored,
        needs=_CONFIGURED,
    ),
    Check(
        id="flyte-names",
        level=Level.WARNING,
        proves="Flyte finds connectors by their configured names",
        judge=_upper,
        needs=_CONFIGURED,
    ),
    Check(
        id="flyte-retries",
        level=Level.WARNING,
        proves="Flyte waits for a connector that is unavailable for a moment",
        judge=_hasty,
        needs=_CONFIGURED,
    ),
    Check(
        id="flyte-timeout",
        level=Level.WARNING,
        proves="Flyte has a timeout for each call",
        judge=_no_timeout,
        needs=_CONFIGURED,
    ),
    Check(
        id="connector-service",
        level=Level.ERROR,
        proves="the Service in the configuration of Flyte exists",
        judge=_unserved,
        needs=(Subject.FLYTE_CONFIG, Subject.SERVICES),
    ),
    Check(
        id="connector-down",
        level=Level.ERROR,
        proves="a pod is ready behind that Service",
        judge=_nobody,
        needs=(Subject.FLYTE_CONFIG, Subject.SERVICES, Subject.ENDPOINTS),
    ),
    Check(
        id="connector-silent",
        level=Level.ERROR,
        proves="the connector of --connector answers, and serves tasks of type pytorch",
        judge=_silent,
        needs=(Subject.CONNECTOR,),
    ),
)
