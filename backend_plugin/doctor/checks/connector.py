"""Checks of the output stores, and of the connector: its Service, its release and its permissions."""

import re
from collections.abc import Iterator
from typing import Final

from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, kubectl_commands
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.checks import flyte
from backend_plugin.doctor.facts import Facts, Subject

_ENDPOINT: Final = re.compile(
    r"(?:dns:///|k8s://)?(?P<service>[a-z0-9-]{1,63})\.(?P<namespace>[a-z0-9-]{1,63})(?:\.svc(?:\.[a-z0-9.-]{1,253})?)?:(?P<port>\d{1,5})"
)

CHECKS: Final = CheckList()


def _iter_endpoints(facts: Facts) -> Iterator[tuple[str, re.Match[str], Manifest | None]]:
    """Yield the connectors of Flyte's configuration whose endpoint is in Flyte's namespace.

    Each item is the path of its setting, its endpoint as a match of `_ENDPOINT`, and its Service, or None.
    """
    for path, config in flyte.iter_connectors(facts):
        endpoint = _ENDPOINT.fullmatch(get_text(config, "endpoint"))
        if endpoint is not None and endpoint["namespace"] == facts.flyte_namespace:
            yield path, endpoint, facts.find_object(Subject.SERVICES, endpoint["service"])


@CHECKS.add(Subject.FLYTE_CONFIG, Subject.SERVICES)
def _check_connector_service(facts: Facts) -> Iterator[Violation]:
    """Check that the Service and the port of the connector in Flyte's configuration exist."""
    for path, endpoint, service in _iter_endpoints(facts):
        ports = [each.get("port") for each in get_mappings(service, "spec", "ports")]
        if int(endpoint["port"]) not in ports:
            what = f"has the ports {', '.join(map(str, ports))}" if service else "does not exist"
            yield Violation(
                f"{path}.endpoint is {endpoint[0]}, and the Service {endpoint['service']} {what}",
                f"kubectl get services -n {facts.flyte_namespace}  # write an existing endpoint",
            )


@CHECKS.add(Subject.FLYTE_CONFIG, Subject.SERVICES, Subject.ENDPOINTS)
def _check_connector_down(facts: Facts) -> Iterator[Violation]:
    """Check that the Service of the connector has a ready pod."""
    for path, endpoint, service in _iter_endpoints(facts):
        name = endpoint["service"]
        slices = [
            each
            for each in facts.get_objects(Subject.ENDPOINTS)
            if get_text(each, "metadata", "labels", "kubernetes.io/service-name") == name
        ]
        if service and not deployments.has_ready_endpoint(slices):
            yield Violation(
                f"{path}.endpoint is the Service {name}, behind which no pod is ready",
                f"kubectl get pods -n {facts.flyte_namespace}; kubectl describe service {name} -n "
                f"{facts.flyte_namespace}",
            )


@CHECKS.add(Subject.CONNECTOR)
def _check_connector_unreachable(facts: Facts) -> Iterator[Violation]:
    """Check that the connector that `--connector` names answers, and serves tasks of type pytorch."""
    if facts.connector is not None and facts.connector.problem:
        yield Violation(
            f"the connector at {facts.connector.what} {facts.connector.problem}", facts.connector.remedy
        )


@CHECKS.add(Subject.STORES)
def _check_output_store(facts: Facts) -> Iterator[Violation]:
    """Check that an object below the output prefix can be written, read and deleted (`--read-only`: read)."""
    for each in facts.stores:
        if each.problem:
            yield Violation(f"{each.what}: {each.problem}", each.remedy, is_unknown=not each.is_tried)


@CHECKS.add(Subject.DEPLOYMENTS, Subject.RIGHTS)
def _check_connector_rbac(facts: Facts) -> Iterator[Violation]:
    """Check that the service account of the connector has the required permissions."""
    for account, rules in facts.missing_permissions.items():
        user = f"system:serviceaccount:{account.replace('/', ':')}"
        yield Violation(
            f"the connector's account {account} lacks permissions: {kubectl_commands.format_uses(rules)}",
            f"{kubectl_commands.build_grant_command(rules, user)}  # or rbac.create: true of the chart",
        )


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_connector_version_mismatch(facts: Facts) -> Iterator[Violation]:
    """Check that the connector and this command have the same version."""
    for each in deployments.list_connectors(facts):
        version = deployments.get_release(each)
        if version and facts.release and version != facts.release:
            yield Violation(
                f"the connector has version {version}, and this command {facts.release}: "
                f"{deployments.format_kubectl_name(each)}",
                f"install flytekitplugins-kfpytorch {version} from its repository, or upgrade the connector",
            )
