"""Checks of the output stores, and of the installed connector: its release and its permissions."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.doctor import deployments, rbac_commands
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

CHECKS: Final = CheckList()


@CHECKS.add(Subject.STORES)
def _check_output_store(facts: Facts) -> Iterator[Violation]:
    """An object below the output prefix can be written, read and deleted; or listed with `--read-only`."""
    for each in facts.stores:
        if each.trouble:
            yield Violation(
                sentence=f"{each.what}: {each.trouble}",
                remedy=each.remedy,
                is_unknown=not each.is_tried,
            )


@CHECKS.add(Subject.DEPLOYMENTS, Subject.RIGHTS)
def _check_connector_rbac(facts: Facts) -> Iterator[Violation]:
    """The service account of the connector has the required permissions."""
    for each in facts.lacking:
        uses = rbac_commands.format_uses(each.rules)
        user = f"system:serviceaccount:{each.namespace}:{each.name}"
        yield Violation(
            sentence=f"the connector's account {each.namespace}/{each.name} lacks permissions: {uses}",
            remedy=f"{rbac_commands.build_command(each.rules, user)}  # or rbac.create: true of the chart",
        )


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_connector_version_mismatch(facts: Facts) -> Iterator[Violation]:
    """The connector and this command have the same version."""
    for each in deployments.list_connectors(facts):
        version = deployments.get_release(each)
        if version and facts.release and version != facts.release:
            yield Violation(
                sentence=f"the connector has version {version}, and this command {facts.release}: "
                f"{deployments.format_kubectl_name(each)}",
                remedy=f"install flytekitplugins-kfpytorch {version} from its repository, "
                "or upgrade the connector",
            )
